//! The heap: what was taken for a moment goes back to the system.

/// So much may stay free at the end of each thread's part of the heap.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: libc::c_int = 32 << 10;

/// A part grows by so much more than is needed.
#[cfg(target_env = "gnu")]
const AHEAD_BYTES: libc::c_int = 4 << 10;

/// Has the allocator of the process give back what is free, to be called before there are threads.
///
/// Left to itself, glibc's keeps twice as much as the largest block that it ever mapped and gave
/// back, in each thread's part: one answer about many devices, made by a thread that has ended
/// since, stays in memory for ever. Workers take and free nothing in steady state, so they do not
/// notice. Other allocators are left as they are.
pub fn give_back_what_is_free() {
    #[cfg(target_env = "gnu")]
    // SAFETY: two numbers of the allocator are set, which it reads under its own locks.
    unsafe {
        // Refused only when the parameter is unknown.
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
        libc::mallopt(libc::M_TOP_PAD, AHEAD_BYTES);
    }
}
