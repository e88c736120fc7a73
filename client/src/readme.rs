//! Compiles the example of the project's README.

#[doc = include_str!("../../README.md")]
struct Readme;
