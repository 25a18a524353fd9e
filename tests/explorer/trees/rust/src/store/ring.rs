use super::Store;
use crate::gauge::Reading;

pub struct Ring {
    kept: Vec<Reading>,
    size: usize,
}

impl Ring {
    pub fn new(size: usize) -> Ring {
        Ring { kept: Vec::new(), size }
    }
}

impl Store for Ring {
    fn put(&mut self, reading: Reading) {
        if self.kept.len() == self.size {
            self.kept.remove(0);
        }
        self.kept.push(reading);
    }

    fn last(&self, n: usize) -> Vec<Reading> {
        self.kept.iter().rev().take(n).cloned().collect()
    }
}
