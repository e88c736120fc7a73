//! The guarded copy for 64-bit Arm, and the registers of a thread that faulted in it.

use std::arch::global_asm;

global_asm!(
    ".pushsection .text.maru_shm_copy,\"ax\",@progbits",
    ".p2align 6",
    ".globl maru_shm_copy",
    ".hidden maru_shm_copy",
    ".type maru_shm_copy,@function",
    "maru_shm_copy:",
    ".cfi_startproc",
    "subs x2, x2, #64",
    "b.lo 3f",
    "2:",
    "ldp q0, q1, [x1]",
    "ldp q2, q3, [x1, #32]",
    "stp q0, q1, [x0]",
    "stp q2, q3, [x0, #32]",
    "add x1, x1, #64",
    "add x0, x0, #64",
    "subs x2, x2, #64",
    "b.hs 2b",
    "3:",
    "adds x2, x2, #64",
    "b.eq 5f",
    "4:",
    "ldrb w3, [x1], #1",
    "strb w3, [x0], #1",
    "subs x2, x2, #1",
    "b.ne 4b",
    "5:",
    "mov x0, #0",
    ".globl maru_shm_copy_return",
    ".hidden maru_shm_copy_return",
    "maru_shm_copy_return:",
    "ret",
    ".cfi_endproc",
    ".size maru_shm_copy, . - maru_shm_copy",
    ".popsection",
);

/// Gives the address of the instruction that was interrupted.
///
/// # Safety
///
/// The context is the one that the kernel passed to the running signal handler.
pub(super) unsafe fn program_counter(context: *const libc::ucontext_t) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { (*context).uc_mcontext.pc }
}

/// Lets the thread go on elsewhere, with a result in the register for it.
///
/// # Safety
///
/// As for [`program_counter`]; and the code at `address` can follow the interrupted instruction.
pub(super) unsafe fn resume_at(context: *mut libc::ucontext_t, address: u64, result: u64) {
    // SAFETY: the caller's promise.
    unsafe { (*context).uc_mcontext.pc = address };
    // SAFETY: the caller's promise.
    unsafe { (*context).uc_mcontext.regs[0] = result };
}
