//! Every entrance is tried on its seeds and on what is near them, and is one of the
//! fuzz targets.

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
    assert_eq!(fuzz::targets_of("fluxgate"), names);
}
