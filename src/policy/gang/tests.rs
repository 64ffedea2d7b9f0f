//! What becomes of a `GangPolicy`.
