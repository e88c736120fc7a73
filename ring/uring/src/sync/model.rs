//! What loom can explore in place of the eventfd and of rtrb, with the same interface.

use std::io;

use loom::sync::{Condvar, Mutex};

/// A counter that a sleeping thread waits for.
#[derive(Debug)]
pub(crate) struct Bell {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { count: Mutex::new(0), changed: Condvar::new() })
    }

    pub(crate) fn ring(&self) {
        *self.count.lock().expect("no panic while locked") += 1;
        self.changed.notify_one();
    }

    pub(crate) fn take(&self) -> io::Result<u64> {
        let mut count = self.count.lock().expect("no panic while locked");
        while *count == 0 {
            count = self.changed.wait(count).expect("no panic while locked");
        }
        Ok(std::mem::take(&mut *count))
    }
}

/// A ring of one writer and one reader that orders memory as rtrb does: by its two indexes alone.
pub(crate) mod queue {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Debug)]
    struct Shared<T> {
        slots: Vec<UnsafeCell<Option<T>>>,
        head: AtomicUsize,
        tail: AtomicUsize,
    }

    // SAFETY: a slot is touched by the writer before the tail moves past it, and by the reader
    // after that and before the head does; loom checks every access.
    unsafe impl<T: Send> Sync for Shared<T> {}

    pub(crate) struct RingBuffer;

    impl RingBuffer {
        #[expect(clippy::new_ret_no_self, reason = "rtrb has this interface")]
        pub(crate) fn new<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
            let shared = Arc::new(Shared {
                slots: (0..capacity).map(|_| UnsafeCell::new(None)).collect(),
                head: AtomicUsize::new(0),
                tail: AtomicUsize::new(0),
            });
            (Producer { shared: Arc::clone(&shared) }, Consumer { shared })
        }
    }

    pub(crate) enum PushError<T> {
        Full(T),
    }

    #[derive(Debug)]
    pub(crate) struct Producer<T> {
        shared: Arc<Shared<T>>,
    }

    impl<T> Producer<T> {
        pub(crate) fn push(&mut self, value: T) -> Result<(), PushError<T>> {
            let tail = self.shared.tail.load(Ordering::Relaxed);
            let head = self.shared.head.load(Ordering::Acquire);
            if tail - head == self.shared.slots.len() {
                return Err(PushError::Full(value));
            }
            let slot = &self.shared.slots[tail % self.shared.slots.len()];
            slot.with_mut(|slot| {
                // SAFETY: the slot is free, so the reader does not touch it.
                unsafe { *slot = Some(value) }
            });
            self.shared.tail.store(tail + 1, Ordering::Release);
            Ok(())
        }

        pub(crate) fn is_abandoned(&self) -> bool {
            Arc::strong_count(&self.shared) == 1
        }
    }

    #[derive(Debug)]
    pub(crate) struct Consumer<T> {
        shared: Arc<Shared<T>>,
    }

    impl<T> Consumer<T> {
        pub(crate) fn pop(&mut self) -> Result<T, ()> {
            let head = self.shared.head.load(Ordering::Relaxed);
            if head == self.shared.tail.load(Ordering::Acquire) {
                return Err(());
            }
            let slot = &self.shared.slots[head % self.shared.slots.len()];
            let value = slot.with_mut(|slot| {
                // SAFETY: the slot is filled, so the writer does not touch it.
                let slot = unsafe { &mut *slot };
                slot.take()
            });
            self.shared.head.store(head + 1, Ordering::Release);
            value.ok_or(())
        }

        pub(crate) fn is_abandoned(&self) -> bool {
            Arc::strong_count(&self.shared) == 1
        }
    }
}
