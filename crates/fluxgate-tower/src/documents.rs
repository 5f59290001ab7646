//! The programs in the documents, compiled and run as doctests. They stand here because
//! this crate has everything that they need.

#[doc = include_str!("../../../README.md")]
struct Readme;

#[doc = include_str!("../../../docs/middleware.md")]
struct Middleware;

#[doc = include_str!("../../../docs/redis.md")]
struct Redis;
