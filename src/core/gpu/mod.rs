//! GPU requests: whole cards, shares by memory or fraction, and every way in which they contradict each other.

mod device_claims;
mod share;
mod validation;

pub use device_claims::{DeviceClaim, DeviceKind, GpuRules, device_claims};
pub use share::{GpuShare, ShareSize};
pub use validation::{asks_for_share, findings};
