//! Who is asked by which path.

use portcullis_core::admission::Hook;

/// A path that takes reviews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Gangs and GPU requests.
    Gangs(Hook),
    /// The policies of the platform team.
    Policies(Hook),
}

impl Route {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Gangs(Hook::Mutate),
        Self::Gangs(Hook::Validate),
        Self::Policies(Hook::Mutate),
        Self::Policies(Hook::Validate),
    ];

    /// Whether it patches or judges.
    pub fn hook(self) -> Hook {
        match self {
            Self::Gangs(hook) | Self::Policies(hook) => hook,
        }
    }

    /// Whether policies are asked.
    pub fn is_for_policies(self) -> bool {
        matches!(self, Self::Policies(_))
    }

    /// The path.
    pub fn path(self) -> &'static str {
        match self {
            Self::Gangs(Hook::Mutate) => "/mutate",
            Self::Gangs(Hook::Validate) => "/validate",
            Self::Policies(Hook::Mutate) => "/policies/mutate",
            Self::Policies(Hook::Validate) => "/policies/validate",
        }
    }

    /// For logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gangs(hook) => hook.as_str(),
            Self::Policies(Hook::Mutate) => "policies_mutate",
            Self::Policies(Hook::Validate) => "policies_validate",
        }
    }
}
