//! Faults on a real control plane: processes that die or sleep at the worst moment, answers that are lost, parts that are restarted,
//! nodes and pods that change between decision and lift. Whatever happened, the same checker looks at what came of it.
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
