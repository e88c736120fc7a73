//! Loom model (to come).
