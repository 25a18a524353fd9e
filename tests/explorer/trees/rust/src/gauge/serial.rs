use crate::store::retry::retry;

pub struct SerialPort;

impl SerialPort {
    pub fn open() -> SerialPort {
        retry(3, || Some(SerialPort)).expect("a port")
    }

    pub fn level(&self) -> i32 {
        310
    }
}
