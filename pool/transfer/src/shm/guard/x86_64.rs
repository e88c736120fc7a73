//! The guarded copy for x86-64, and the registers of a thread that faulted in it.
//!
//! The fast string copy up to 256 KiB, then sixteen-byte loads and stores, which every x86-64
//! has: measured as the better one of the two at either side (docs/decisions/004-shm-mover.md).

use std::arch::global_asm;

global_asm!(
    ".pushsection .text.maru_shm_copy,\"ax\",@progbits",
    ".p2align 6",
    ".globl maru_shm_copy",
    ".hidden maru_shm_copy",
    ".type maru_shm_copy,@function",
    "maru_shm_copy:",
    ".cfi_startproc",
    "cmp rdx, 262144",
    "jb 4f",
    ".p2align 5",
    "2:",
    "movdqu xmm0, [rsi]",
    "movdqu xmm1, [rsi + 16]",
    "movdqu xmm2, [rsi + 32]",
    "movdqu xmm3, [rsi + 48]",
    "movdqu [rdi], xmm0",
    "movdqu [rdi + 16], xmm1",
    "movdqu [rdi + 32], xmm2",
    "movdqu [rdi + 48], xmm3",
    "add rsi, 64",
    "add rdi, 64",
    "sub rdx, 64",
    "cmp rdx, 64",
    "jae 2b",
    // Less than 64 bytes are left: copy the last 64 of all, some of them again.
    "test rdx, rdx",
    "jz 5f",
    "movdqu xmm0, [rsi + rdx - 64]",
    "movdqu xmm1, [rsi + rdx - 48]",
    "movdqu xmm2, [rsi + rdx - 32]",
    "movdqu xmm3, [rsi + rdx - 16]",
    "movdqu [rdi + rdx - 64], xmm0",
    "movdqu [rdi + rdx - 48], xmm1",
    "movdqu [rdi + rdx - 32], xmm2",
    "movdqu [rdi + rdx - 16], xmm3",
    "jmp 5f",
    "4:",
    "mov rcx, rdx",
    "rep movsb",
    "5:",
    "xor eax, eax",
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
    let register = unsafe { (*context).uc_mcontext.gregs[libc::REG_RIP as usize] };
    register.cast_unsigned()
}

/// Lets the thread go on elsewhere, with a result in the register for it.
///
/// # Safety
///
/// As for [`program_counter`]; and the code at `address` can follow the interrupted instruction.
pub(super) unsafe fn resume_at(context: *mut libc::ucontext_t, address: u64, result: u64) {
    // SAFETY: the caller's promise.
    unsafe { (*context).uc_mcontext.gregs[libc::REG_RIP as usize] = address.cast_signed() };
    // SAFETY: the caller's promise.
    unsafe { (*context).uc_mcontext.gregs[libc::REG_RAX as usize] = result.cast_signed() };
}
