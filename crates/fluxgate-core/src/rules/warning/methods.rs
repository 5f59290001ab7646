//! Methods that differ from a standard one only by case.

use crate::rules::fault::{FaultCollector, Step};

/// The methods of RFC 9110 and RFC 5789.
const STANDARD: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
];

pub(super) fn warn(methods: &[Box<str>], warnings: &mut FaultCollector<'_>) {
    for (index, method) in methods.iter().enumerate() {
        let mut standard = STANDARD.iter();
        let standard = standard.find(|known| known.eq_ignore_ascii_case(method));
        if let Some(standard) = standard.filter(|standard| **standard != &**method) {
            let path = [Step::Field("match"), Step::Field("methods")];
            warnings.enter(path.into_iter().chain([Step::Index(index)]));
            warnings.add(format!(
                "method `{method}` does not match `{standard}`: methods are case-sensitive"
            ));
            warnings.leave(3);
        }
    }
}
