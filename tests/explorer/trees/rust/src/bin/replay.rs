//! Plays recorded readings back.

use tidewatch::store::ring::Ring;
use tidewatch::store::Store;

fn main() {
    let ring = Ring::new(10);
    println!("{} readings", ring.last(10).len());
}
