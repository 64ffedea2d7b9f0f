//! The exit codes of all commands.

use std::process::ExitCode;

/// The result of a command. Scripts rely on the numbers. The order is from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ExitStatus {
    /// 0: the answer is yes.
    Success,
    /// 1: the answer is no: something was denied, or an expectation failed.
    Negative,
    /// 2: there is no answer: bad arguments, an unreadable file, a port in use.
    Failure,
    /// 3: bad arguments or nothing to do. Only commands about policies distinguish it from 2.
    Usage,
}

impl ExitStatus {
    pub(super) fn code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Success => 0,
            Self::Negative => 1,
            Self::Failure => 2,
            Self::Usage => 3,
        })
    }
}
