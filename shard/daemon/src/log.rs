//! Log lines: to standard error, as text or JSON. `RUST_LOG` filters; the default is `info`.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// Starts logging for the rest of the process.
pub(crate) fn start(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => {
            lines.with_ansi(std::io::stderr().is_terminal()).with_target(false).init();
        }
        LogFormat::Json => lines.json().with_target(false).init(),
    }
}
