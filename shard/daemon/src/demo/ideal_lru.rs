//! What a perfect least-recently-used cache of a given capacity gives on a stream of requests.
//!
//! Exact: the leading run of a request hits and is touched in order, then the rest is stored.

use std::collections::HashMap;

const NONE: usize = usize::MAX;

struct Entry {
    block: u64,
    older: usize,
    newer: usize,
}

/// A list of at most `capacity` blocks in order of their last use, and the hits counted so far.
pub(crate) struct IdealLru {
    capacity: usize,
    entries: Vec<Entry>,
    index: HashMap<u64, usize>,
    oldest: usize,
    newest: usize,
    hits: u64,
    blocks: u64,
}

impl IdealLru {
    /// Makes an empty cache of `capacity` blocks, at least 1.
    pub(crate) fn new(capacity: usize) -> Self {
        assert!(capacity > 0, "a cache holds at least one block");
        Self {
            capacity,
            entries: Vec::new(),
            index: HashMap::new(),
            oldest: NONE,
            newest: NONE,
            hits: 0,
            blocks: 0,
        }
    }

    /// Looks up the leading run of `blocks`, stores the rest, and returns the run's length.
    pub(crate) fn request(&mut self, blocks: &[u64]) -> usize {
        let run = blocks.iter().take_while(|block| self.touch(**block)).count();
        for block in &blocks[run..] {
            if !self.touch(*block) {
                self.insert(*block);
            }
        }
        self.hits += run as u64;
        self.blocks += blocks.len() as u64;
        run
    }

    /// Returns hits over blocks, 0 before the first block.
    pub(crate) fn hit_ratio(&self) -> f64 {
        ratio(self.hits, self.blocks)
    }

    /// Returns how many blocks all requests together had.
    pub(crate) fn block_count(&self) -> u64 {
        self.blocks
    }

    fn touch(&mut self, block: u64) -> bool {
        let Some(&place) = self.index.get(&block) else { return false };
        self.unlink(place);
        self.link_newest(place);
        true
    }

    fn insert(&mut self, block: u64) {
        let place = if self.entries.len() < self.capacity {
            self.entries.push(Entry { block, older: NONE, newer: NONE });
            self.entries.len() - 1
        } else {
            let place = self.oldest;
            self.unlink(place);
            self.index.remove(&self.entries[place].block);
            self.entries[place].block = block;
            place
        };
        self.index.insert(block, place);
        self.link_newest(place);
    }

    fn unlink(&mut self, place: usize) {
        let Entry { older, newer, .. } = self.entries[place];
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer].older = older,
        }
    }

    fn link_newest(&mut self, place: usize) {
        self.entries[place].older = self.newest;
        self.entries[place].newer = NONE;
        match self.newest {
            NONE => self.oldest = place,
            newest => self.entries[newest].newer = place,
        }
        self.newest = place;
    }
}

/// Returns `part / whole`, 0 for an empty whole.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests;
