//! The URL paths of the webhook that take admission reviews.

use portcullis_core::admission::Hook;

/// A review path: its subject (gangs or policies) and its hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Reviews of gangs and GPU requests.
    Gangs(Hook),
    /// Reviews by policy files.
    Policies(Hook),
}

impl Route {
    /// All review paths.
    pub const ALL: [Self; 4] = [
        Self::Gangs(Hook::Mutate),
        Self::Gangs(Hook::Validate),
        Self::Policies(Hook::Mutate),
        Self::Policies(Hook::Validate),
    ];

    /// The hook: mutate or validate.
    pub fn hook(self) -> Hook {
        match self {
            Self::Gangs(hook) | Self::Policies(hook) => hook,
        }
    }

    /// Whether policy files answer.
    pub fn is_for_policies(self) -> bool {
        matches!(self, Self::Policies(_))
    }

    /// The URL path.
    pub fn path(self) -> &'static str {
        match self {
            Self::Gangs(Hook::Mutate) => "/mutate",
            Self::Gangs(Hook::Validate) => "/validate",
            Self::Policies(Hook::Mutate) => "/policies/mutate",
            Self::Policies(Hook::Validate) => "/policies/validate",
        }
    }

    /// The value of the field `hook` in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gangs(hook) => hook.as_str(),
            Self::Policies(Hook::Mutate) => "policies_mutate",
            Self::Policies(Hook::Validate) => "policies_validate",
        }
    }
}
