//! Checks of an object besides its syntax: fields and types by schema, the API server's own rules, and
//! expressions against known kinds.
//!
//! Each check runs on its own, and none hides the findings of another. [`schema_check::clean`] removes what
//! one check has rejected before the next one reads the object.

pub(crate) mod api_rules;
mod name_rules;
pub(crate) mod schema_check;
pub(crate) mod typed_expressions;

pub(crate) use api_rules::label_selector;
pub(crate) use typed_expressions::TypedEnvironments;
