//! Readings on disk, in a ring of files.

use crate::gauge::Reading;

pub mod retry;
pub mod ring;

pub trait Store {
    fn put(&mut self, reading: Reading);
    fn last(&self, n: usize) -> Vec<Reading>;
}
