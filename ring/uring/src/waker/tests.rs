//! Loom tests (to come).
