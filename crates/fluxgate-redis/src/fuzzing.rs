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
    use fluxgate_testkit::fuzz;

    use super::ALL;

    #[test]
    fn promises_hold_for_the_seeds_and_near_them() {
        for (target, entrance) in ALL {
            fuzz::try_near_seeds(target, entrance);
        }
    }

    #[test]
    fn every_entrance_has_a_target() {
        let names: Vec<_> = ALL.iter().map(|(name, _)| *name).collect();
        assert_eq!(fuzz::targets_of("fluxgate-redis"), names);
    }
}
