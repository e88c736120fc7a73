//! Short forms of what most tests ask a pool for.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use maru_client::{
    Client, Key, LoadItem, LoadOutcome, Match, Reservation, ReserveItem, Reserved, StoreItem,
    StoreOutcome,
};

use crate::harness::CALL;

/// Stores one chunk.
pub(crate) fn store_one(client: &Client, key: Key, bytes: &[u8]) -> StoreOutcome {
    client.store(&[StoreItem { key, bytes }], CALL).unwrap().remove(0)
}

/// Loads one chunk of at most 256 KiB; `None` when it is missing.
pub(crate) fn load_one(client: &Client, key: Key) -> Option<Vec<u8>> {
    let mut into = vec![0; 256 << 10];
    let mut items = [LoadItem { key, into: &mut into }];
    match client.load(&mut items, Match::All, CALL).unwrap().remove(0) {
        LoadOutcome::Loaded(bytes) => {
            into.truncate(bytes);
            Some(into)
        }
        LoadOutcome::Missing => None,
        other => panic!("{other:?}"),
    }
}

/// Reserves one chunk.
pub(crate) fn try_reserve(client: &Client, key: Key, object_bytes: u64) -> Reserved {
    client.reserve(&[ReserveItem { key, object_bytes }], CALL).unwrap().remove(0)
}

/// Reserves one chunk, which must be granted.
pub(crate) fn reserve(client: &Client, key: Key, object_bytes: u64) -> Reservation {
    match try_reserve(client, key, object_bytes) {
        Reserved::Granted(reservation) => reservation,
        other => panic!("{other:?}"),
    }
}

/// Whether a key is visible.
pub(crate) fn is_present(client: &Client, key: Key) -> bool {
    client.exists(&[key], Match::All, CALL).unwrap().leading_count == 1
}

/// Writes a secret that only its owner may read.
pub(crate) fn secret_file(folder: &Path, secret: &str) -> PathBuf {
    let path = folder.join("secret");
    std::fs::write(&path, secret).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}
