//! GPU requests: whole cards, shares by memory or fraction, and every way in which they contradict each other.

mod share;

pub use share::{GpuShare, ShareSize};
