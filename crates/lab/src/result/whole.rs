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
    // Whoever had our number before may have left one. What can not be removed is in the way.
    let _ = fs::remove_file(&beside);
    let written = File::create_new(&beside)
        .and_then(|mut file| {
            if let Ok(there) = fs::metadata(path) {
                file.set_permissions(there.permissions())?;
            }
            file.write_all(bytes)?;
            // A disk may say only then that it is full.
            file.sync_data()
        })
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // The failure is what is told; what is left of it may stay.
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Writes to where somebody wants it: what is there stays until all of it is written. A link leads
/// to where it is written; what is no regular file, such as a pipe, takes it as it comes, and so
/// does a file that may be written but not replaced.
///
/// # Errors
/// The system refuses.
pub fn deliver(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let Some(file) = destination(path)? else { return fs::write(path, bytes) };
    match write(&file, bytes) {
        Err(error) if file.exists() && stays(&error) => fs::write(&file, bytes),
        outcome => outcome,
    }
}

/// Whether nothing may be put beside a file or into its place: the directory is somebody else's, or
/// the file is a mount of its own.
fn stays(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::AlreadyExists
            | Kind::CrossesDevices
            | Kind::PermissionDenied
            | Kind::ReadOnlyFilesystem
            | Kind::ResourceBusy
    )
}

/// The regular file that is to be there. Nothing when it is something else, what we write to
/// anyway, or a link to what is not there yet.
fn destination(path: &Path) -> io::Result<Option<PathBuf>> {
    match fs::metadata(path) {
        Ok(there) if there.is_file() && !is_stream(&there) => {
            // Whoever has forbidden to write it does not want another one in its place.
            File::options().write(true).open(path)?;
            Ok(fs::canonicalize(path).ok())
        }
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
