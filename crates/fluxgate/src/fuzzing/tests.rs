//! Every entrance is tried on its seeds and on what is near them, and is one of the
//! fuzz targets.

#[test]
fn promises_hold_for_the_seeds_and_near_them() {
    fluxgate_testkit::fuzz::try_all("fluxgate", &super::ALL);
}
