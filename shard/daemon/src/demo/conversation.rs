//! Generates multi-turn conversations that share system prompts, from a seed.
//!
//! Many conversations go on at once. Each turn asks with the system prompt and the whole history,
//! so its leading blocks were stored by the turn before, or by others with that system prompt.

use super::pattern::splitmix;
use super::workload::Request;

/// Conversations that go on at once.
const OPEN_CONVERSATIONS: u64 = 96;
/// System prompts; low numbers are far more frequent.
const SYSTEM_PROMPTS: u64 = 16;
/// Most blocks of a prompt; a conversation that grew longer ends.
const PROMPT_BLOCKS_MAX: usize = 160;

struct Conversation {
    blocks: Vec<u64>,
    turns_left: u64,
}

/// An endless stream of requests. Equal seeds give equal streams.
pub(crate) struct Conversations {
    random: u64,
    next_block: u64,
    open: Vec<Conversation>,
}

impl Conversations {
    /// Starts a stream from `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: splitmix(seed), next_block: 1 << 32, open: Vec::new() }
    }

    /// Returns a number in `low..=high`.
    fn draw(&mut self, low: u64, high: u64) -> u64 {
        self.random = splitmix(self.random);
        low + self.random % (high - low + 1)
    }

    fn start(&mut self) -> Conversation {
        // The smaller of two draws: half of all conversations use the first quarter of the prompts.
        let prompt = self.draw(0, SYSTEM_PROMPTS - 1).min(self.draw(0, SYSTEM_PROMPTS - 1));
        let prompt_blocks = 2 + prompt * 5 % 13;
        let blocks = (0..prompt_blocks).map(|index| prompt << 8 | index).collect();
        // A third are single questions.
        let turns_left = if self.draw(0, 2) == 0 { 1 } else { self.draw(2, 12) };
        Conversation { blocks, turns_left }
    }

    /// Adds what one turn brings: the last answer and a new question, now and then a document.
    fn grow(&mut self, conversation: &mut Conversation) {
        let new = if self.draw(0, 9) == 0 { self.draw(20, 60) } else { self.draw(1, 6) };
        conversation.blocks.extend(self.next_block..self.next_block + new);
        self.next_block += new;
        conversation.turns_left -= 1;
    }
}

impl Iterator for Conversations {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let place = usize::try_from(self.draw(0, OPEN_CONVERSATIONS - 1)).expect("a small number");
        let mut conversation =
            if place < self.open.len() { self.open.swap_remove(place) } else { self.start() };
        self.grow(&mut conversation);
        let request = Request { blocks: conversation.blocks.clone() };
        if conversation.turns_left > 0 && conversation.blocks.len() < PROMPT_BLOCKS_MAX {
            self.open.push(conversation);
        }
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::demo::ideal_lru::IdealLru;

    #[test]
    fn equal_seeds_give_equal_streams_and_others_do_not() {
        let take = |seed| Conversations::new(seed).take(200).collect::<Vec<_>>();
        assert_eq!(take(1), take(1));
        assert_ne!(take(1), take(2));
    }

    /// The load must be worth a cache: reuse, new blocks, and more of them than a pool holds.
    #[test]
    fn conversations_share_their_leading_blocks() {
        let mut endless = IdealLru::new(usize::MAX);
        let mut distinct = HashSet::new();
        for request in Conversations::new(42).take(6000) {
            assert!(request.blocks.len() < PROMPT_BLOCKS_MAX + 60);
            distinct.extend(request.blocks.iter().copied());
            assert_eq!(request.blocks.iter().collect::<HashSet<_>>().len(), request.blocks.len());
            endless.request(&request.blocks);
        }
        let ratio = endless.hit_ratio();
        assert!((0.6..0.95).contains(&ratio), "{ratio} with room for everything");
        assert!(distinct.len() > 20_000, "{} distinct blocks", distinct.len());
    }
}
