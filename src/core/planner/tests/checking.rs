//! The second opinion.
