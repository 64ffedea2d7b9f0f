//! Basic types: identities, amounts with units, time, reason codes, findings.
//!
//! They have no behaviour beyond arithmetic, parsing and display. All identities are ordered, so that every
//! sort can end with a unique key.

mod backoff;
mod finding;
mod ids;
pub mod random;
mod reason;
mod resources;
mod time;
mod units;

pub use backoff::Backoff;
pub use finding::{Finding, FindingRule};
pub use ids::{DialectId, Epoch, GangId, NodeName, PodKey, PodUid, ResourceVersion, Str, str};
pub use portcullis_text::quantity::{self, Quantity, QuantityError};
pub use portcullis_text::{closest, quoted};
pub use reason::Reason;
pub use resources::Resources;
pub use time::Time;
pub use units::{Bytes, MilliCpu, VramMib};
