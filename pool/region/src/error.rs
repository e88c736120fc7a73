//! Why a region could not be made.

/// Why a region could not be made or populated. Each names what to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The size is none.
    #[error("a region of {bytes} bytes: the size must be a positive multiple of {unit} bytes")]
    Size {
        /// The size asked for.
        bytes: u64,
        /// The size of one page of the region's kind.
        unit: u64,
    },
}
