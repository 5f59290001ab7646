//! Every schedule.
