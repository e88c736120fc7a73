//! Why bytes are no message. It owns no recovery: the caller closes the connection.

use crate::Op;

/// Why bytes are no message. The connection that sent them is closed, with `reason` counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// The frame does not begin with the protocol's magic.
    #[error("the frame does not begin with `MARU`")]
    BadMagic,
    /// The header is of this version, which the connection does not use.
    #[error("the header is of version {0}, which is not spoken here")]
    BadVersion(u16),
    /// No operation has this number.
    #[error("no operation has the number {0}")]
    UnknownOp(u8),
    /// These flags are unknown, or contradict each other or the operation.
    #[error("the flags {0:#04x} are unknown or contradict each other")]
    BadFlags(u8),
    /// The header's reserved field is this, not zero.
    #[error("the header's reserved field is {0:#x}, not zero")]
    BadReserved(u32),
    /// The header announces a larger body than the connection takes.
    #[error("the header announces {bytes} bytes, at most {max} are taken")]
    BodyTooLarge {
        /// Bytes announced.
        bytes: u32,
        /// Bytes taken at most.
        max: u32,
    },
    /// The bytes behind the body are not zero.
    #[error("the padding behind the body is not zero")]
    BadPadding,
    /// A request where a reply is due, or the other way round.
    #[error("a {0} frame in the wrong direction")]
    WrongDirection(Op),
    /// The operation does not belong to this phase of the connection.
    #[error("a {0} frame is not expected in this phase of the connection")]
    WrongOp(Op),
    /// The body is not an archive of the operation's type.
    #[error("the body is no archive of {0}")]
    BadBody(Op),
    /// A list of the body is longer than the protocol allows.
    #[error("{count} {field} in one {op} frame, at most {max} are taken")]
    TooMany {
        /// The frame's operation.
        op: Op,
        /// The list.
        field: &'static str,
        /// Its length.
        count: usize,
        /// Its greatest length.
        max: usize,
    },
    /// A field of the body has a value that the protocol forbids.
    #[error("the value of `{1}` in a {0} frame is forbidden")]
    BadValue(Op, &'static str),
}

impl DecodeError {
    /// Returns the reason in snake case, for counters of closed connections.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::BadMagic => "bad_magic",
            Self::BadVersion(_) => "bad_version",
            Self::UnknownOp(_) => "unknown_op",
            Self::BadFlags(_) => "bad_flags",
            Self::BadReserved(_) => "bad_reserved",
            Self::BodyTooLarge { .. } => "body_too_large",
            Self::BadPadding => "bad_padding",
            Self::WrongDirection(_) => "wrong_direction",
            Self::WrongOp(_) => "wrong_op",
            Self::BadBody(_) => "bad_body",
            Self::TooMany { .. } => "too_many_items",
            Self::BadValue(..) => "bad_value",
        }
    }
}
