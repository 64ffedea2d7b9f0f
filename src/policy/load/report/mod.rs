//! Shows problems: as text for users, and in formats for programs.

mod formats;
mod terminal;

pub use formats::{problems_as_github_annotations, problems_as_json, problems_as_sarif};
pub use terminal::render_problems;
#[cfg(test)]
pub(super) use terminal::severity_name;
