//! GPU requests of pods: whole GPUs, shares by memory or fraction, and the validation of their combinations.

mod device_claims;
mod share;
mod validation;

pub use device_claims::{DeviceClaim, DeviceKind, GpuRules, device_claims};
pub use share::{GpuShare, ShareSize};
pub use validation::{asks_for_share, findings};
