//! Everything that the daemon and the replay tool share.

pub mod config;
pub mod gauge;
pub mod store;
pub mod warn;
