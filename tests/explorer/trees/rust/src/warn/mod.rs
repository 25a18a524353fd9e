//! When to warn, and in which words.

use crate::config::Config;
use crate::gauge::Reading;

pub mod words;

pub enum Severity {
    Watch,
    Act,
}

pub struct Warning {
    pub severity: Severity,
    pub level_cm: i32,
}

impl Warning {
    pub fn text(&self) -> String {
        words::sentence(self)
    }
}

pub fn decide(reading: &Reading, config: &Config) -> Option<Warning> {
    if reading.level_cm < config.limit_cm {
        return None;
    }
    Some(Warning { severity: Severity::Act, level_cm: reading.level_cm })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_water_is_no_news() {
        let config = Config::load("x");
        let reading = Reading { gauge: "pier".into(), level_cm: 1, at: 0 };
        assert!(decide(&reading, &config).is_none());
    }
}
