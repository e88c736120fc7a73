//! The process's own heap, beside the pool.

/// Gives free memory of all threads' heaps back to the system.
///
/// Frees alone do not: a thread's heap shrinks at its top only. Takes up to milliseconds, and
/// makes threads wait that allocate meanwhile. Does nothing where the C library has no such call.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes the heaps' locks itself and touches free chunks only.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests;
