//! GPU requests: whole cards, shares by memory or fraction, and every way in which they contradict each other.

mod contradictions;
mod share;
mod whole;

pub use contradictions::{asks_for_share, findings};
pub use share::{GpuShare, ShareSize};
pub use whole::{DeviceClaim, DeviceKind, GpuRules, device_claims};
