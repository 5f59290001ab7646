//! Functions that are given any bytes and panic where what a parser promises does
//! not hold. Fuzz targets call them, and so does a test: with the seeds, and with
//! what is near them.

/// What is given any bytes.
pub type Entrance = fn(&[u8]);

/// All of them, by their names.
pub const ALL: [(&str, Entrance); 1] = [("script_reply", script_reply)];

/// What the script says.
pub fn script_reply(bytes: &[u8]) {
    crate::codec::any_bytes::script_reply(bytes);
}

#[cfg(test)]
mod tests {
    #[test]
    fn promises_hold_for_the_seeds_and_near_them() {
        fluxgate_testkit::fuzz::try_all("fluxgate-redis", &super::ALL);
    }
}
