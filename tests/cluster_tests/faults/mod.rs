//! Faults on a real control plane: processes that are killed or paused between any two requests, lost
//! answers, restarted parts, and nodes and pods that change between plan and lift. The same checker verifies
//! the result of each.
//!
//! `cargo cluster-tests --features failpoints faults`

mod answers;
mod changes;
mod checker;
mod checker_tests;
mod parts;
mod points;
mod rollout;
mod stage;
