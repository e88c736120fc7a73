//! The 64 bits that name an operation: kind (8), tag of the connection (32), slot (24).

use crate::event::ConnectionId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bell,
    Cancel,
    Connect,
    Receive,
    Send,
}

const KINDS: [Kind; 5] = [Kind::Bell, Kind::Cancel, Kind::Connect, Kind::Receive, Kind::Send];

/// Which operation of which connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) kind: Kind,
    pub(super) id: ConnectionId,
}

impl Tag {
    pub(super) const BELL: Self = Self { kind: Kind::Bell, id: ConnectionId { index: 0, tag: 0 } };

    pub(super) fn pack(self) -> u64 {
        let ConnectionId { index, tag } = self.id;
        assert!(index < 1 << 24, "connections_max is below 2^24");
        // 0 is what operations without a tag carry.
        let kind = KINDS.iter().position(|kind| *kind == self.kind).expect("listed") as u64 + 1;
        kind << 56 | u64::from(tag) << 24 | u64::from(index)
    }

    /// None for an operation without a tag.
    pub(super) fn unpack(bits: u64) -> Option<Self> {
        let kind = KINDS.get(((bits >> 56) as usize).checked_sub(1)?)?;
        let tag = u32::try_from(bits >> 24 & 0xffff_ffff).expect("masked to 32 bits");
        let index = u32::try_from(bits & 0xff_ffff).expect("masked to 24 bits");
        Some(Self { kind: *kind, id: ConnectionId { index, tag } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_survive_packing() {
        for kind in KINDS {
            for (index, tag) in [(0, 0), ((1 << 24) - 1, u32::MAX), (5, 1 << 31)] {
                let tag = Tag { kind, id: ConnectionId { index, tag } };
                assert_eq!(Tag::unpack(tag.pack()), Some(tag));
            }
        }
        assert_eq!(Tag::unpack(0), None);
        assert_eq!(Tag::unpack(u64::MAX), None);
    }
}
