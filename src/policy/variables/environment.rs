//! The CEL environments of policies: the variables of the API server and of Portcullis. Built once and shared
//! by all expressions.

use std::sync::LazyLock;

use portcullis_cel::Env;

static ENVIRONMENTS: LazyLock<[Env; 2]> =
    LazyLock::new(|| [false, true].map(|has_params| super::declare(Env::admission(has_params)).sealed()));

/// Returns the environment of a policy, with `params` if the policy has a `paramKind`.
pub(crate) fn environment(has_params: bool) -> Env {
    ENVIRONMENTS[usize::from(has_params)].clone()
}
