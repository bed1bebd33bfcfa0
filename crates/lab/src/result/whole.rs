//! Files that are there whole or not at all.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Writes beside the place and renames.
pub(super) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = dir.join(format!(".{name}.{}", std::process::id()));
    let written = File::create(&beside)
        .and_then(|mut file| {
            if let Ok(there) = fs::metadata(path) {
                file.set_permissions(there.permissions())?;
            }
            file.write_all(bytes)
        })
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // The failure is what is told; what is left of it may stay.
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Writes to where somebody wants it: what is there stays until all of it is written. A link leads
/// to where it is written; what is no regular file, such as a pipe, takes it as it comes.
///
/// # Errors
/// The system refuses.
pub fn deliver(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match destination(path)? {
        Some(file) => write(&file, bytes),
        None => fs::write(path, bytes),
    }
}

/// The regular file that is to be there. Nothing when it is something else, what we write to
/// anyway, or a link to what is not there yet.
fn destination(path: &Path) -> io::Result<Option<PathBuf>> {
    match fs::metadata(path) {
        Ok(there) if there.is_file() && !is_stream(&there) => Ok(fs::canonicalize(path).ok()),
        Ok(_) => Ok(None),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Err(_) if fs::symlink_metadata(path).is_ok() => Ok(None),
        Err(_) => Ok(Some(path.to_owned())),
    }
}

/// Whether whoever started us collects there what we say: it must stay the same file.
fn is_stream(there: &Metadata) -> bool {
    let is_there = |stream: Metadata| (stream.dev(), stream.ino()) == (there.dev(), there.ino());
    ["/dev/stdout", "/dev/stderr"].iter().any(|name| fs::metadata(name).is_ok_and(is_there))
}
