//! What can be wrong with an object besides its syntax: fields and types by schema, the API server's own rules, and
//! expressions checked against known kinds.

pub(crate) mod api_rules;
mod name_rules;
pub(crate) mod schema_check;
pub(crate) mod typed_expressions;

pub(crate) use api_rules::label_selector;
pub(crate) use typed_expressions::TypedEnvironments;
