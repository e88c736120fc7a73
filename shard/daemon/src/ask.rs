//! What `stats` and `ping` share: a client of the server that is asked.

use std::process::ExitCode;
use std::time::Duration;

use maru_client::{Client, ClientConfig, Error, SecretError, ServerAddress, read_secret_file};

use crate::cli::ServerArgs;
use crate::config::unix_path_default;

/// Namespace of an operator's connections. They see no key of it.
const NAMESPACE: &str = "maru-operator";

/// Why a server could not be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum AskError {
    #[error("{0}")]
    Client(#[from] Error),
    #[error("--secret-file: {0}")]
    Secret(#[from] SecretError),
    #[error("cannot print: {0}")]
    Print(#[from] std::io::Error),
    #[error("cannot print: {0}")]
    Json(#[from] serde_json::Error),
}

/// Makes a client that only watches.
pub(crate) fn client(args: &ServerArgs) -> Result<Client, AskError> {
    let address = match &args.address {
        Some(text) => text.parse()?,
        None => ServerAddress::Unix(unix_path_default()),
    };
    let mut config = ClientConfig::new(address, NAMESPACE);
    if let Some(path) = &args.secret_file {
        config.secret = read_secret_file(path)?;
    }
    config.control_timeout = args.timeout.0;
    // It moves no bytes, so that a server's short TTLs are no reason to refuse it.
    config.transfer_timeout = Duration::from_millis(1);
    Ok(Client::new(config)?)
}

/// Names the whole time that a command had in the error of a call that had what was left of it.
pub(crate) fn within(timeout: Duration) -> impl Fn(Error) -> Error {
    move |error| match error {
        Error::Timeout { server, .. } => Error::Timeout { server, deadline: timeout },
        other => other,
    }
}

/// Turns the outcome of a command into its exit code, and says what went wrong.
pub(crate) fn exit_code(outcome: Result<(), AskError>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("maru-shardd: {error}");
            ExitCode::FAILURE
        }
    }
}
