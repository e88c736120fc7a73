//! Copies that survive a bus error: poisoned memory, or a file cut short under its map.
//!
//! The copy is a small assembly routine without a stack frame. A handler of SIGBUS knows where
//! the routine's instructions lie: a fault in it ends the copy with the faulting address, a fault
//! anywhere else goes to whoever handled SIGBUS before. SIGSEGV is left alone: a copy that reaches
//! unmapped memory is a bug of this crate.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{io, mem, ptr};

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the guarded copy is written for x86_64 and aarch64 only");

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64::{program_counter, resume_at};
#[cfg(target_arch = "x86_64")]
use x86_64::{program_counter, resume_at};

unsafe extern "C" {
    /// Copies `length` bytes forward. Returns 0, or the address that the handler puts there.
    fn maru_shm_copy(to: *mut u8, from: *const u8, length: usize) -> usize;
    /// The routine's last instruction, its return. It is executed after a fault, too.
    static maru_shm_copy_return: u8;
}

/// What handled SIGBUS before. Null until the handler is installed, and for the default.
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// A bus error at this address ended a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The address, or the start of the lost range around it.
    pub(crate) address: usize,
}

/// Copies bytes; a bus error at either side is an error. Part of the bytes may be copied then.
///
/// The calling thread must not block SIGBUS: the kernel ends a process that faults so.
///
/// # Safety
///
/// The handler is installed. Both ranges are mapped, `from` readable and `to` writable, and stay so during the call. They
/// do not overlap. No Rust reference to `to` exists besides the caller's exclusive one.
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, length: usize) -> Result<(), Fault> {
    // SAFETY: the ranges are the caller's promise; a bus error is caught by the handler.
    match unsafe { maru_shm_copy(to, from, length) } {
        0 => Ok(()),
        address => Err(Fault { address }),
    }
}

/// Installs the handler, once per process. Later calls give the first one's result.
pub(crate) fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let outcome = INSTALLED.get_or_init(|| {
        install_now().map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL))
    });
    outcome.map_err(io::Error::from_raw_os_error)
}

/// Says whether lost memory is an error of its copy in this process, and not a signal.
///
/// True from the first map on, unless something in the process has since replaced the handler of
/// SIGBUS, as Python's `faulthandler.enable()` does.
#[must_use]
pub fn fault_guard_is_installed() -> bool {
    current_action().is_ok_and(|action| action.sa_sigaction == handler_address())
}

fn handler_address() -> libc::sighandler_t {
    on_bus_error as *const () as libc::sighandler_t
}

fn install_now() -> io::Result<()> {
    let before = current_action()?;
    remember(before);
    let mut action = before;
    action.sa_sigaction = handler_address();
    // The previous handler's mask stays, so that it runs with what it blocks.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    let mut replaced = empty_action();
    // SAFETY: both point to whole structures; the handler only does what a signal handler may.
    let result = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, &raw mut replaced) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if replaced.sa_sigaction != before.sa_sigaction {
        remember(replaced);
    }
    Ok(())
}

fn empty_action() -> libc::sigaction {
    // SAFETY: all of its fields are integers, sets of bits or an optional function: zero is valid.
    unsafe { mem::zeroed() }
}

fn current_action() -> io::Result<libc::sigaction> {
    let mut action = empty_action();
    // SAFETY: a null new action changes nothing, the old one is written to a whole structure.
    let result = unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut action) };
    if result == 0 { Ok(action) } else { Err(io::Error::last_os_error()) }
}

/// Keeps the action for the handler to find. It is never freed: the handler may be reading it.
fn remember(action: libc::sigaction) {
    PREVIOUS.store(Box::into_raw(Box::new(action)), Ordering::Release);
}

/// Ends a guarded copy that faulted, or passes the signal on.
///
/// Async-signal-safe: it reads its arguments and one atomic, and calls no more than `sigaction`
/// and `raise`. Any number of threads may be in it at once.
extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a whole structure (SA_SIGINFO).
    let code = unsafe { (*info).si_code };
    let fault = is_fault(code);
    let copy = maru_shm_copy as *const () as u64..(&raw const maru_shm_copy_return) as u64;
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the kernel passes the interrupted thread's context (SA_SIGINFO).
    let at = unsafe { program_counter(context) };
    if !fault || !copy.contains(&at) {
        return pass_on(Signal { number: signal, info, context: context.cast() }, fault);
    }
    // SAFETY: as for the code above.
    let info = unsafe { &*info };
    // SAFETY: SIGBUS with a fault's code carries an address.
    let address = unsafe { info.si_addr() } as u64;
    // SAFETY: as above; the routine has no stack frame, so its return instruction may follow any
    // other one of its instructions.
    unsafe { resume_at(context, copy.end, address.max(1)) };
}

/// Says whether the instruction at the program counter raised the signal.
///
/// `kill` and its like have codes up to 0; BUS_MCEERR_AO tells of poison that nobody has read yet.
fn is_fault(code: c_int) -> bool {
    code > 0 && code != libc::BUS_MCEERR_AO
}

/// A handler's arguments.
#[derive(Clone, Copy)]
struct Signal {
    number: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
}

/// Does what would have been done without this module.
fn pass_on(signal: Signal, fault: bool) {
    let previous = PREVIOUS.load(Ordering::Acquire);
    // SAFETY: null, or a structure that is never freed and never changed.
    let Some(previous) = (unsafe { previous.as_ref() }) else {
        return end_process(signal, fault);
    };
    match previous.sa_sigaction {
        // The kernel does not let a fault be ignored, either.
        libc::SIG_IGN if !fault => return,
        libc::SIG_DFL | libc::SIG_IGN => return end_process(signal, fault),
        _ => {}
    }
    if previous.sa_flags & libc::SA_RESETHAND != 0 {
        PREVIOUS.store(ptr::null_mut(), Ordering::Release);
    }
    if previous.sa_flags & libc::SA_SIGINFO != 0 {
        type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
        // SAFETY: the flag says that the address is of a function with these arguments.
        let handler = unsafe { mem::transmute::<usize, Handler>(previous.sa_sigaction) };
        handler(signal.number, signal.info, signal.context);
    } else {
        // SAFETY: without the flag the function takes the number only.
        let handler =
            unsafe { mem::transmute::<usize, extern "C" fn(c_int)>(previous.sa_sigaction) };
        handler(signal.number);
    }
}

/// Restores the default, which ends the process when the signal comes again.
fn end_process(signal: Signal, fault: bool) {
    let default = empty_action();
    // SAFETY: an action of zeroes is the default one: no handler, no flags, no mask.
    unsafe { libc::sigaction(signal.number, &raw const default, ptr::null_mut()) };
    if !fault {
        // A fault repeats by itself after the return, and keeps its address for the core dump.
        // SAFETY: `raise` takes any signal number; it stays pending until the handler returns.
        unsafe { libc::raise(signal.number) };
    }
}

#[cfg(test)]
mod tests;
