//! Checks of the allocator's lists and tags.

use super::{FREE, NEXT, NO_PAGE, PREV, PageNumber, Pages, RUN, class_of};
use crate::books::{Checked, equal, holds};

impl Pages {
    /// How many shard-local numbers there are, those that stand for no page included.
    pub(crate) fn number_count(&self) -> usize {
        self.pages.len()
    }

    /// Checks every free run, and marks its pages.
    pub(crate) fn check_free(&self, is_taken: &mut [bool]) -> Checked {
        let mut free_count = 0;
        for (class, first) in (0u32..).zip(self.classes) {
            let is_nonempty = self.nonempty >> class & 1 == 1;
            holds("a class with a run is known", is_nonempty == (first != NO_PAGE))?;
            let mut at = first;
            let mut prev = NO_PAGE;
            while at != NO_PAGE {
                let entry = self.pages[at as usize];
                holds("a listed run is free", entry[RUN] & FREE != 0)?;
                let length = entry[RUN] & !FREE;
                equal("a run is in its class", u64::from(class_of(length)), u64::from(class))?;
                equal("a run knows the one before", u64::from(entry[PREV]), u64::from(prev))?;
                let last = self.pages[(at + length - 1) as usize][RUN];
                equal("a run has its length at both ends", last.into(), entry[RUN].into())?;
                let behind = self.pages[(at + length) as usize][RUN];
                holds("free neighbours are one run", behind & FREE == 0)?;
                self.mark(at, length, is_taken)?;
                free_count += u64::from(length);
                prev = at;
                at = entry[NEXT];
            }
        }
        equal("free pages", u64::from(self.free_count), free_count)
    }

    /// Marks the pages of an object. Returns how many.
    pub(crate) fn check_object(
        &self,
        first: PageNumber,
        is_taken: &mut [bool],
    ) -> Result<u64, crate::books::BooksError> {
        let mut count = 0;
        let mut at = first;
        while at != NO_PAGE {
            let [length, next, _] = self.pages[at as usize];
            holds("an object's run is not free", length & FREE == 0 && length > 0)?;
            self.mark(at, length, is_taken)?;
            count += u64::from(length);
            at = next;
        }
        Ok(count)
    }

    fn mark(&self, first: PageNumber, length: u32, is_taken: &mut [bool]) -> Checked {
        let placed = self.placed(first);
        let end = placed.first + placed.extent.page_count;
        holds("no run crosses an extent", first >= placed.first && first + length <= end)?;
        for page in first..first + length {
            let was_taken = core::mem::replace(&mut is_taken[page as usize], true);
            holds("a page has one use", !was_taken)?;
        }
        Ok(())
    }
}
