//! Effects of a mutating policy's expression on an object: JSON patches and apply configurations, as the API
//! server applies them.

pub(super) mod apply_configuration;
pub(super) mod cel_to_json;
pub(super) mod json_patch;
pub(super) mod size;
pub(super) mod strict_decoding;
