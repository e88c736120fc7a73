//! Doubly linked lists through the items of a table.

/// A place in a table.
pub(crate) type Slot = u32;
/// No place. No table is that large.
pub(crate) const NONE: Slot = Slot::MAX;

/// An item's neighbours in one list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Links {
    pub(crate) prev: Slot,
    pub(crate) next: Slot,
}

impl Default for Links {
    fn default() -> Self {
        Self { prev: NONE, next: NONE }
    }
}

/// A table whose items have links for the lists of kind `K`.
pub(crate) trait Linked<K> {
    fn links(&mut self, slot: Slot) -> &mut Links;
    fn next(&self, slot: Slot) -> Slot;
}

/// The ends of a list. Its user says by `K` which links of the table's items it goes through.
#[derive(Debug)]
pub(crate) struct List<K> {
    pub(crate) head: Slot,
    pub(crate) tail: Slot,
    kind: core::marker::PhantomData<K>,
}

impl<K> Default for List<K> {
    fn default() -> Self {
        Self { head: NONE, tail: NONE, kind: core::marker::PhantomData }
    }
}

impl<K> List<K> {
    pub(crate) fn first(&self) -> Option<Slot> {
        (self.head != NONE).then_some(self.head)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    pub(crate) fn push_back(&mut self, table: &mut impl Linked<K>, slot: Slot) {
        *table.links(slot) = Links { prev: self.tail, next: NONE };
        if self.tail == NONE {
            self.head = slot;
        } else {
            table.links(self.tail).next = slot;
        }
        self.tail = slot;
    }

    pub(crate) fn remove(&mut self, table: &mut impl Linked<K>, slot: Slot) {
        let Links { prev, next } = core::mem::take(table.links(slot));
        if prev == NONE {
            self.head = next;
        } else {
            table.links(prev).next = next;
        }
        if next == NONE {
            self.tail = prev;
        } else {
            table.links(next).prev = prev;
        }
    }

    /// Moves all of `other` to the end of this list, in one step.
    pub(crate) fn append(&mut self, table: &mut impl Linked<K>, other: &mut Self) {
        if other.head == NONE {
            return;
        }
        if self.tail == NONE {
            self.head = other.head;
        } else {
            table.links(self.tail).next = other.head;
            table.links(other.head).prev = self.tail;
        }
        self.tail = other.tail;
        *other = Self::default();
    }

    /// Walks the list from its head.
    pub(crate) fn iter<'a, T: Linked<K>>(&self, table: &'a T) -> impl Iterator<Item = Slot> + 'a {
        let mut at = self.head;
        core::iter::from_fn(move || {
            let slot = (at != NONE).then_some(at)?;
            at = table.next(slot);
            Some(slot)
        })
    }
}
