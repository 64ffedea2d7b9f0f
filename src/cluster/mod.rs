//! The cluster edge: what the engine is told comes from watches, what it wants done goes out as requests.
//!
//! Owns every connection to the API server and the lease. Decides nothing about pods or gangs: the engine does.

mod client;
mod lines;

pub use client::{
    APPLY_PATCH, Client, ClientError, FIELD_MANAGER, JSON, JSON_PATCH, Lost, MERGE_PATCH, REQUEST_TIMEOUT,
    Reply, collection_path,
};
pub use lines::Lines;
