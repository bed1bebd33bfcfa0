//! Groups of this machine.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;

/// What a group's entry may take at most, its members' names included.
const MAX_ENTRY_BYTES: usize = 1 << 20;

/// The number of a group; `None` when there is none of this name. May ask a server of names.
///
/// # Errors
/// The system's answer.
pub fn group_id(name: &str) -> io::Result<Option<u32>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let mut memory = vec![0_u8; 1 << 10];
    loop {
        let mut entry = MaybeUninit::<libc::group>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: the name ends with a zero; entry, memory (of the length that is told) and found
        // are ours alone during the call. The entry is filled in where `found` points to it.
        let error = unsafe {
            libc::getgrnam_r(
                name.as_ptr(),
                entry.as_mut_ptr(),
                memory.as_mut_ptr().cast(),
                memory.len(),
                &raw mut found,
            )
        };
        match error {
            // SAFETY: `found` points to the entry, which the call has filled in.
            0 if !found.is_null() => return Ok(Some(unsafe { (*found).gr_gid })),
            // POSIX leaves open how "there is none" is said.
            0 | libc::ENOENT | libc::ESRCH => return Ok(None),
            libc::ERANGE if memory.len() < MAX_ENTRY_BYTES => memory.resize(memory.len() * 2, 0),
            libc::EINTR => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::group_id;

    #[test]
    fn groups_have_numbers() {
        assert_eq!(group_id("root").expect("an answer"), Some(0));
        assert_eq!(group_id("no-such-group-here").expect("an answer"), None);
        assert_eq!(group_id("ro\0ot").expect("an answer"), None);
    }
}
