//! What the shard knows of each namespace: its counts and when it was last cleared.

use alloc::string::String;

use maru_wire::Namespace;

use crate::list::Slot;
use crate::slab::Slab;

/// One namespace's books.
#[derive(Debug)]
pub(crate) struct NamespaceBooks {
    pub(crate) digest: Namespace,
    pub(crate) name: String,
    /// Published and not cleared.
    pub(crate) key_count: u64,
    pub(crate) used_pages: u64,
    /// Of live and overdue reservations.
    pub(crate) reserved_pages: u64,
    /// Objects with an older stamp are cleared.
    pub(crate) cleared_stamp: u64,
    /// The eviction number of the last Clear. Who knows only less must forget all.
    pub(crate) cleared_number: u64,
    /// Clients and objects, of any state, that name it.
    pub(crate) refs: u64,
}

/// Namespaces by slot.
#[derive(Debug)]
pub(crate) struct Namespaces {
    namespaces: Slab<NamespaceBooks>,
    /// The last Clear of any namespace that was forgotten since.
    forgotten_cleared_number: u64,
}

impl Namespaces {
    pub(crate) fn new(namespaces_max: u16) -> Self {
        Self { namespaces: Slab::growing(u32::from(namespaces_max)), forgotten_cleared_number: 0 }
    }

    /// Returns the namespace's slot, a new one when it is not known. None when there is no room.
    pub(crate) fn open(&mut self, digest: &Namespace, name: &str) -> Option<u16> {
        let used = self.namespaces.used();
        let known = used.iter().find(|slot| self.namespaces[**slot].digest == *digest);
        if let Some(slot) = known {
            return u16::try_from(*slot).ok();
        }
        if self.namespaces.is_full() {
            let unused = used.iter().find(|slot| self.namespaces[**slot].refs == 0)?;
            self.forget(*unused);
        }
        let slot = self.namespaces.insert(NamespaceBooks {
            digest: *digest,
            name: String::from(name),
            key_count: 0,
            used_pages: 0,
            reserved_pages: 0,
            cleared_stamp: 0,
            cleared_number: self.forgotten_cleared_number,
            refs: 0,
        });
        u16::try_from(slot).ok()
    }

    #[inline]
    pub(crate) fn get(&self, slot: u16) -> &NamespaceBooks {
        &self.namespaces[Slot::from(slot)]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u16) -> &mut NamespaceBooks {
        &mut self.namespaces[Slot::from(slot)]
    }

    pub(crate) fn used(&self) -> impl Iterator<Item = u16> + use<> {
        self.namespaces.used().into_iter().filter_map(|slot| u16::try_from(slot).ok())
    }

    fn forget(&mut self, slot: Slot) {
        let cleared_number = self.namespaces[slot].cleared_number;
        self.forgotten_cleared_number = self.forgotten_cleared_number.max(cleared_number);
        self.namespaces.remove(slot);
    }
}
