use crate::warn::{Severity, Warning};

pub fn sentence(warning: &Warning) -> String {
    match warning.severity {
        Severity::Watch => format!("Water at {} cm: watch it.", warning.level_cm),
        Severity::Act => format!("Water at {} cm: act now.", warning.level_cm),
    }
}
