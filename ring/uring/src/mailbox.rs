//! Bounded mailboxes from one thread to the thread of a reactor.
//!
//! A full mailbox gives the message back. The receiver's reactor reports `Woken`; its user then
//! pops until the mailbox is empty.

use crate::sync::rtrb::{Consumer, Producer, PushError, RingBuffer};
use crate::waker::Waker;

/// Makes a mailbox for `capacity` messages whose receiver is woken by `waker`.
pub fn channel<T>(capacity: usize, waker: Waker) -> (Sender<T>, Receiver<T>) {
    let (producer, consumer) = RingBuffer::new(capacity);
    (Sender { producer, waker }, Receiver { consumer })
}

/// The one writer of a mailbox.
#[derive(Debug)]
pub struct Sender<T> {
    producer: Producer<T>,
    waker: Waker,
}

impl<T> Sender<T> {
    /// Puts a message in and wakes the receiver. Never blocks.
    ///
    /// # Errors
    ///
    /// The message itself, when the mailbox is full: try again later, or answer "busy".
    pub fn try_send(&mut self, message: T) -> Result<(), T> {
        match self.producer.push(message) {
            Ok(()) => {
                self.waker.wake();
                Ok(())
            }
            Err(PushError::Full(message)) => Err(message),
        }
    }

    /// True when the receiver is gone, so that no message will be read any more.
    pub fn is_abandoned(&self) -> bool {
        self.producer.is_abandoned()
    }
}

/// The one reader of a mailbox.
#[derive(Debug)]
pub struct Receiver<T> {
    consumer: Consumer<T>,
}

impl<T> Receiver<T> {
    /// Takes the oldest message. Never blocks.
    pub fn pop(&mut self) -> Option<T> {
        self.consumer.pop().ok()
    }

    /// True when the sender is gone; messages may still be inside.
    pub fn is_abandoned(&self) -> bool {
        self.consumer.is_abandoned()
    }
}
