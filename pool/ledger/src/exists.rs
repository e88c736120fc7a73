//! Exists: which keys are present. It touches and pins nothing.

use maru_wire::{ArchivedExists, ArchivedMatch};

use crate::shard::Shard;
use crate::work::{Work, take_step};

impl Shard {
    /// True when every key is answered.
    pub(crate) fn exists(
        &mut self,
        request: &ArchivedExists,
        work: &mut Work,
        budget: &mut u32,
    ) -> bool {
        let reply = &mut work.replies.exists;
        let is_all = matches!(request.matching, ArchivedMatch::All);
        if is_all {
            reply.bitmap.resize(request.keys.len().div_ceil(64), 0);
        }
        while let Some(key) = request.keys.get(work.cursor) {
            self.warm_names(work.cursor, request.keys.len(), |item| &request.keys[item]);
            if !take_step(budget) {
                return false;
            }
            if self.present(key).is_some() {
                self.totals.exists_hit += 1;
                reply.leading_count += u32::from(!work.is_over);
                if is_all {
                    reply.bitmap[work.cursor / 64] |= 1 << (work.cursor % 64);
                }
            } else {
                self.totals.exists_miss += 1;
                work.is_over = true;
                if !is_all {
                    return true;
                }
            }
            work.cursor += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests;
