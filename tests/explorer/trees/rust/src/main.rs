//! The daemon: reads gauges, decides, sends warnings.

use tidewatch::gauge::{Gauge, Reading};
use tidewatch::warn::decide;
use tidewatch::config::Config;

fn main() {
    let config = Config::load("tidewatch.toml");
    for gauge in config.gauges() {
        let reading: Reading = gauge.read();
        if let Some(warning) = decide(&reading, &config) {
            println!("{}", warning.text());
        }
    }
    let _ = Gauge::named("none");
}
