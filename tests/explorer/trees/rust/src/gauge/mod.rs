//! Tide gauges and what they say.

mod serial;

pub use self::serial::SerialPort;

/// One measurement.
#[derive(Debug, Clone)]
pub struct Reading {
    pub gauge: String,
    pub level_cm: i32,
    pub at: u64,
}

pub struct Gauge {
    name: String,
}

impl Gauge {
    pub fn named(name: &str) -> Gauge {
        Gauge { name: name.to_string() }
    }

    pub fn read(&self) -> Reading {
        Reading { gauge: self.name.clone(), level_cm: SerialPort::open().level(), at: 0 }
    }
}
