//! The vocabulary: identities, quantities with units, time as a value, reason codes.
//!
//! Owns no behaviour beyond arithmetic, parsing and display. Everything is ordered, so that every comparison can end
//! in a unique key.

mod finding;
mod ids;
pub mod random;
mod reason;
mod resources;
mod time;
mod units;

pub use finding::{Finding, FindingRule};
pub use ids::{DialectId, Epoch, GangId, NodeName, PodKey, PodUid, ResourceVersion, Str, str};
pub use portcullis_text::quantity::{self, Quantity, QuantityError};
pub use portcullis_text::{closest, quoted};
pub use reason::Reason;
pub use resources::Resources;
pub use time::Time;
pub use units::{Bytes, MilliCpu, VramMib};
