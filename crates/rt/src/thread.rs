//! Threads that are started while a daemon runs.

use crate::memory::Map;
use std::io;

/// A part of the heap of its own is aligned to 64 MiB: glibc asks for twice as much address space.
const HEAP_BYTES: usize = 128 << 20;

/// A page or so in front of the stack, and the stack on which its overflow is told.
const BESIDE_BYTES: usize = 1 << 20;

/// Starts a thread.
///
/// One of the standard library's maps memory of its own when it runs already, and the allocator a
/// part of the heap for it; where that cannot be had, the *process* ends. So it is tried before
/// whether there is room for all of it.
///
/// # Errors
/// There is no room, or the system gives no thread.
pub fn spawn(
    name: &str,
    stack_bytes: usize,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    Map::new(HEAP_BYTES + BESIDE_BYTES + stack_bytes)?;
    let builder = std::thread::Builder::new().name(name.to_owned()).stack_size(stack_bytes);
    builder.spawn(work).map(drop)
}
