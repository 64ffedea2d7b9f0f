//! `test-cluster`: the cluster of the tests as a playground.

fn main() {}
