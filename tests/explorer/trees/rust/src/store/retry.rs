//! Trying again a few times before giving up.

pub fn retry<T>(attempts: u32, act: impl Fn() -> Option<T>) -> Option<T> {
    for _ in 0..attempts {
        if let Some(done) = act() {
            return Some(done);
        }
    }
    None
}
