//! The check of all books, table by table. For tests and for sampling in production.

use alloc::vec;
use alloc::vec::Vec;

use maru_wire::PageCounts;

use crate::list::Slot;
use crate::objects::ObjectState;
use crate::reservations::ReservationState;
use crate::shard::Shard;

/// A rule that the books break.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{rule}: found {found}, expected {expected}")]
pub struct BooksError {
    /// The rule.
    pub rule: &'static str,
    /// What was counted.
    pub found: u64,
    /// What the books say.
    pub expected: u64,
}

/// The result of one check.
pub(crate) type Checked = Result<(), BooksError>;

/// Checks that `found` is what `rule` says.
pub(crate) fn equal(rule: &'static str, found: u64, expected: u64) -> Checked {
    if found == expected { Ok(()) } else { Err(BooksError { rule, found, expected }) }
}

/// Checks that a rule holds.
pub(crate) fn holds(rule: &'static str, is_true: bool) -> Checked {
    equal(rule, u64::from(is_true), 1)
}

/// What one namespace's objects add up to.
#[derive(Clone, Copy, Default)]
struct NamespaceSums {
    key_count: u64,
    used_pages: u64,
    reserved_pages: u64,
    refs: u64,
}

impl Shard {
    /// Checks every table against every other. Takes time in proportion to the shard's size.
    ///
    /// # Errors
    ///
    /// The first rule that does not hold: the ledger has a fault.
    pub fn check_books(&self) -> Result<(), BooksError> {
        let objects = self.objects.used();
        self.check_pages(&objects)?;
        self.check_names(&objects)?;
        self.check_pins(&objects)?;
        self.check_counts(&objects)?;
        self.check_namespaces(&objects)?;
        let cleared = |slot: Slot| self.is_cleared(slot);
        let evictable = |slot: &&Slot| {
            let object = self.objects.get(**slot);
            object.state == ObjectState::Linked && object.pins == 0
        };
        let unpinned = objects.iter().filter(evictable).count() as u64;
        self.lru.check(&self.objects, unpinned, cleared)?;
        self.reservations.check(&self.hashes, &self.objects)?;
        self.clients.check(&self.hashes, &self.reservations, &self.leases, &self.objects)
    }

    /// Every page is free or of one object, and the allocator's lists are right.
    fn check_pages(&self, objects: &[Slot]) -> Checked {
        let mut is_taken = vec![false; self.pages.number_count()];
        self.pages.check_free(&mut is_taken)?;
        for slot in objects {
            let object = self.objects.get(*slot);
            let taken = self.pages.check_object(object.first_page, &mut is_taken)?;
            equal("an object has its pages", taken, u64::from(object.page_count))?;
        }
        let taken = is_taken.iter().filter(|is_taken| **is_taken).count() as u64;
        equal("no page is lost", taken, u64::from(self.pages.total_count()))
    }

    fn check_names(&self, objects: &[Slot]) -> Checked {
        let mut linked_count = 0;
        for slot in objects {
            let object = self.objects.get(*slot);
            let found = self.linked(self.hashes.key(&object.key), &object.key);
            let is_linked = object.state == ObjectState::Linked;
            holds("a linked object is found", (found == Some(*slot)) == is_linked)?;
            linked_count += u64::from(is_linked);
        }
        equal("the index has no other name", self.index.len() as u64, linked_count)
    }

    fn check_pins(&self, objects: &[Slot]) -> Checked {
        let mut pins: Vec<u32> = vec![0; objects.last().map_or(0, |last| *last as usize + 1)];
        self.leases.check(&mut pins)?;
        let mut pinned_count = 0;
        for slot in objects {
            let object = self.objects.get(*slot);
            let counted = core::mem::take(&mut pins[*slot as usize]);
            equal("a pin belongs to a lease", u64::from(object.pins), u64::from(counted))?;
            pinned_count += u64::from(counted > 0);
            let may_be_pinned = object.state != ObjectState::Reserved;
            holds("what is pinned was published", counted == 0 || may_be_pinned)?;
            let is_unlinked = object.state == ObjectState::Unlinked;
            holds("what has no name is pinned", counted > 0 || !is_unlinked)?;
        }
        holds("a lease pins what there is", pins.iter().all(|pins| *pins == 0))?;
        equal("pinned objects are counted", self.totals.pinned, pinned_count)
    }

    fn check_counts(&self, objects: &[Slot]) -> Checked {
        let mut sums = PageCounts {
            free: u64::from(self.pages.free_count()),
            total: u64::from(self.pages.total_count()),
            ..PageCounts::default()
        };
        for slot in objects {
            let object = self.objects.get(*slot);
            let pages = u64::from(object.page_count);
            match object.state {
                ObjectState::Reserved => {}
                ObjectState::Linked if self.is_cleared(*slot) => sums.cleared += pages,
                ObjectState::Linked => sums.published += pages,
                ObjectState::Unlinked => sums.unlinked += pages,
            }
        }
        for slot in self.reservations.slab.used() {
            let reservation = self.reservations.get(slot);
            let pages = u64::from(self.objects.get(reservation.object).page_count);
            match reservation.state {
                ReservationState::Live => sums.reserved += pages,
                ReservationState::Overdue => sums.overdue += pages,
                ReservationState::Fenced => sums.fenced += pages,
            }
        }
        let counts = self.page_counts();
        equal("reserved pages", counts.reserved, sums.reserved)?;
        equal("overdue pages", counts.overdue, sums.overdue)?;
        equal("fenced pages", counts.fenced, sums.fenced)?;
        equal("published pages", counts.published, sums.published)?;
        equal("cleared pages", counts.cleared, sums.cleared)?;
        equal("unlinked pages", counts.unlinked, sums.unlinked)?;
        let kept = sums.reserved + sums.overdue + sums.fenced;
        let sum = sums.free + kept + sums.published + sums.cleared + sums.unlinked;
        equal("every page is counted once", sum, sums.total)
    }

    fn check_namespaces(&self, objects: &[Slot]) -> Checked {
        let used: Vec<u16> = self.namespaces.used().collect();
        let count = used.iter().max().map_or(0, |last| usize::from(*last) + 1);
        let mut sums = vec![NamespaceSums::default(); count];
        for slot in objects {
            let object = self.objects.get(*slot);
            let sum = &mut sums[usize::from(object.namespace)];
            sum.refs += 1;
            if object.state == ObjectState::Linked && !self.is_cleared(*slot) {
                sum.key_count += 1;
                sum.used_pages += u64::from(object.page_count);
            }
        }
        for slot in self.reservations.slab.used() {
            let reservation = self.reservations.get(slot);
            let object = self.objects.get(reservation.object);
            if reservation.state != ReservationState::Fenced {
                let sum = &mut sums[usize::from(object.namespace)];
                sum.reserved_pages += u64::from(object.page_count);
            }
        }
        for namespace in self.clients.namespaces() {
            sums[usize::from(namespace)].refs += 1;
        }
        for slot in used {
            let (books, sum) = (self.namespaces.get(slot), sums[usize::from(slot)]);
            equal("keys of a namespace", books.key_count, sum.key_count)?;
            equal("used pages of a namespace", books.used_pages, sum.used_pages)?;
            equal("reserved pages of a namespace", books.reserved_pages, sum.reserved_pages)?;
            equal("users of a namespace", books.refs, sum.refs)?;
        }
        Ok(())
    }
}
