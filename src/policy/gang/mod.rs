//! `GangPolicy`: how gangs are treated, without CEL.

use serde_json::Value as Json;

use crate::fault::Fault;

/// Makes ordinary policies and bindings of a `GangPolicy`.
///
/// # Errors
/// Everything that is wrong with it.
pub(crate) fn lower(_document: &Json) -> Result<Vec<Json>, Vec<Fault>> {
    Ok(Vec::new())
}
