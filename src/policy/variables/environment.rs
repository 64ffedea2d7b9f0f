//! What the expressions of policies speak of: the variables of the API server and ours. Made once, shared by all expressions.

use std::sync::LazyLock;

use portcullis_cel::Env;

static ENVIRONMENTS: LazyLock<[Env; 2]> =
    LazyLock::new(|| [false, true].map(|has_params| super::declare(Env::admission(has_params)).sealed()));

/// The environment of a policy, with `params` if it has a `paramKind`.
pub(crate) fn environment(has_params: bool) -> Env {
    ENVIRONMENTS[usize::from(has_params)].clone()
}
