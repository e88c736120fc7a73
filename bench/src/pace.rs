//! Progress of a long run on standard error: nothing when that is no terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// Makes a bar over `steps` steps.
pub(crate) fn progress(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len}  {msg}  {elapsed}/{duration}");
    ProgressBar::new(steps as u64)
        .with_style(style.expect("a constant template that is well formed"))
}
