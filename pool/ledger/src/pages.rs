//! The page allocator: contiguous runs where there are any, every step O(1) for each run.
//!
//! Segregated fits with boundary tags: free runs are kept whole and in lists by their length.
//! Pages have shard-local numbers from 1; a page that is never free stands between two extents,
//! so that no run crosses one. It does not know what the pages are used for.

use alloc::vec;
use alloc::vec::Vec;

use maru_wire::{PAGES_PER_OBJECT_MAX, PageRun};

use crate::config::Extent;

/// Shard-local number of a page; 0 is none.
pub(crate) type PageNumber = u32;

/// No page, and the end of a chain or list.
const NO_PAGE: PageNumber = 0;
/// In `Page::run`: the page is the first or the last of a free run.
const FREE: u32 = 1 << 31;
/// Runs of 1 to 64 pages have a list each; the last list has the longer ones.
const CLASS_COUNT: usize = PAGES_PER_OBJECT_MAX as usize + 1;

/// Fields of a page's entry. Plain arrays, so that a large table of zeros costs no memory.
type Page = [u32; 3];
/// Length of the run that begins or ends here, with `FREE`; inside of a run it is stale.
const RUN: usize = 0;
/// In the first page: next free run of the class, or next run of the object.
const NEXT: usize = 1;
/// In the first page of a free run: previous one of the class.
const PREV: usize = 2;

/// An extent and where it begins in the shard's numbers.
#[derive(Debug)]
struct Placed {
    first: PageNumber,
    extent: Extent,
}

/// The shard's pages.
#[derive(Debug)]
pub(crate) struct Pages {
    pages: Vec<Page>,
    extents: Vec<Placed>,
    extents_max: usize,
    page_count_max: u32,
    classes: [PageNumber; CLASS_COUNT],
    /// Bit `i`: class `i` has a run.
    nonempty: u128,
    free_count: u32,
    total_count: u32,
}

impl Pages {
    pub(crate) fn new(page_count_max: u32, extents_max: u32) -> Self {
        let numbers = u64::from(page_count_max) + u64::from(extents_max) + 1;
        assert!(numbers < u64::from(FREE), "a shard has fewer than 2^31 pages and extents");
        let page_count = usize::try_from(numbers).expect("below 2^31");
        Self {
            pages: vec![[0; 3]; page_count],
            extents: Vec::with_capacity(extents_max as usize),
            extents_max: extents_max as usize,
            page_count_max,
            classes: [NO_PAGE; CLASS_COUNT],
            nonempty: 0,
            free_count: 0,
            total_count: 0,
        }
    }

    /// Adds an extent, all free. False when a limit stands in the way.
    pub(crate) fn add(&mut self, extent: Extent) -> bool {
        let room = self.page_count_max - self.total_count;
        if extent.page_count == 0
            || extent.page_count > room
            || self.extents.len() == self.extents_max
        {
            return false;
        }
        let first = self.end() + 1;
        self.extents.push(Placed { first, extent });
        self.total_count += extent.page_count;
        self.free_count += extent.page_count;
        self.list(first, extent.page_count);
        true
    }

    pub(crate) fn free_count(&self) -> u32 {
        self.free_count
    }

    pub(crate) fn total_count(&self) -> u32 {
        self.total_count
    }

    /// Takes `page_count` pages, in as few runs as the best fit gives.
    ///
    /// Returns the first page; the others follow from it by `runs`.
    ///
    /// # Panics
    ///
    /// When fewer are free.
    pub(crate) fn take(&mut self, page_count: u32) -> PageNumber {
        assert!(page_count >= 1 && page_count <= self.free_count, "the caller made room");
        self.free_count -= page_count;
        let mut missing = page_count;
        let mut chain = NO_PAGE;
        while missing > 0 {
            let (first, length) = self.best_fit(missing);
            let taken = length.min(missing);
            self.unlist(first, length);
            if length > taken {
                self.list(first + taken, length - taken);
            }
            self.set_ends(first, taken, taken);
            self.pages[first as usize][NEXT] = chain;
            chain = first;
            missing -= taken;
        }
        chain
    }

    /// Frees all pages of the object that begins at `first`. Returns how many.
    pub(crate) fn free(&mut self, first: PageNumber) -> u32 {
        let mut freed = 0;
        let mut at = first;
        while at != NO_PAGE {
            let [length, next, _] = self.pages[at as usize];
            assert!(length & FREE == 0 && length > 0, "a page is freed once");
            self.free_run(at, length);
            freed += length;
            at = next;
        }
        self.free_count += freed;
        freed
    }

    /// How many runs the object that begins at `first` has.
    pub(crate) fn run_count(&self, first: PageNumber) -> u32 {
        let mut count = 0;
        let mut at = first;
        while at != NO_PAGE {
            count += 1;
            at = self.pages[at as usize][NEXT];
        }
        count
    }

    /// Appends the runs of the object of `page_count` pages that begins at `first`. Returns how
    /// many. For a single page it does not read the page's entry.
    pub(crate) fn append_runs(
        &self,
        first: PageNumber,
        page_count: u32,
        runs: &mut Vec<PageRun>,
    ) -> u32 {
        if page_count == 1 {
            runs.push(self.run(first, 1));
            return 1;
        }
        let mut count = 0;
        let mut at = first;
        while at != NO_PAGE {
            let [length, next, _] = self.pages[at as usize];
            runs.push(self.run(at, length));
            count += 1;
            at = next;
        }
        count
    }

    fn run(&self, first: PageNumber, page_count: u32) -> PageRun {
        let placed = self.placed(first);
        let page_index = placed.extent.page_index + (first - placed.first);
        PageRun { region: placed.extent.region, page_index, page_count }
    }

    /// Reads what freeing an object reads first. The result means nothing.
    pub(crate) fn touch(&self, first: PageNumber) -> u32 {
        self.pages[first as usize][RUN]
    }

    fn placed(&self, page: PageNumber) -> &Placed {
        match self.extents.as_slice() {
            [only] => only,
            extents => &extents[extents.partition_point(|placed| placed.first <= page) - 1],
        }
    }

    /// The page after the last extent: never free.
    fn end(&self) -> PageNumber {
        self.extents.last().map_or(NO_PAGE, |last| last.first + last.extent.page_count)
    }

    /// The shortest run that holds `page_count`, else the longest there is.
    fn best_fit(&self, page_count: u32) -> (PageNumber, u32) {
        let wanted = class_of(page_count);
        let fitting = self.nonempty >> wanted;
        let class = if fitting != 0 {
            wanted + fitting.trailing_zeros()
        } else {
            assert!(self.nonempty != 0, "free pages are in some list");
            self.nonempty.ilog2()
        };
        let first = self.classes[class as usize];
        (first, self.pages[first as usize][RUN] & !FREE)
    }

    fn free_run(&mut self, first: PageNumber, page_count: u32) {
        let (mut first, mut page_count) = (first, page_count);
        if let Some(before) = self.free_length(first - 1) {
            first -= before;
            self.unlist(first, before);
            page_count += before;
        }
        if let Some(behind) = self.free_length(first + page_count) {
            self.unlist(first + page_count, behind);
            page_count += behind;
        }
        self.list(first, page_count);
    }

    /// Length of the free run that begins or ends at this page, which ends some run.
    fn free_length(&self, page: PageNumber) -> Option<u32> {
        let run = self.pages[page as usize][RUN];
        (run & FREE != 0).then_some(run & !FREE)
    }

    fn set_ends(&mut self, first: PageNumber, page_count: u32, run: u32) {
        self.pages[first as usize][RUN] = run;
        self.pages[(first + page_count - 1) as usize][RUN] = run;
    }

    fn list(&mut self, first: PageNumber, page_count: u32) {
        self.set_ends(first, page_count, page_count | FREE);
        let class = class_of(page_count);
        let next = core::mem::replace(&mut self.classes[class as usize], first);
        self.pages[first as usize][NEXT] = next;
        self.pages[first as usize][PREV] = NO_PAGE;
        if next != NO_PAGE {
            self.pages[next as usize][PREV] = first;
        }
        self.nonempty |= 1 << class;
    }

    fn unlist(&mut self, first: PageNumber, page_count: u32) {
        let class = class_of(page_count);
        let [_, next, prev] = self.pages[first as usize];
        if next != NO_PAGE {
            self.pages[next as usize][PREV] = prev;
        }
        if prev != NO_PAGE {
            self.pages[prev as usize][NEXT] = next;
        } else {
            self.classes[class as usize] = next;
            if next == NO_PAGE {
                self.nonempty &= !(1 << class);
            }
        }
    }
}

fn class_of(page_count: u32) -> u32 {
    page_count.min(PAGES_PER_OBJECT_MAX + 1) - 1
}

mod books;
#[cfg(test)]
mod tests;
