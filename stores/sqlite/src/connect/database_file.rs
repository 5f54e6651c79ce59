//! Notices that the file of the database was moved, replaced or deleted.
//!
//! SQLite keeps the file open and goes on writing to it, but no other process will read it again.

use std::{
    fs,
    io::{self, ErrorKind},
    path::{self, Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use crate::error::FileChanged;

/// How often the file is verified for statements that only read.
const VERIFIED_EVERY: Duration = Duration::from_millis(500);

/// The file that the database had when the store was opened.
pub(crate) struct DatabaseFile {
    path: PathBuf,
    /// The name that SQLite uses.
    resolved: String,
    /// `None` if there is no file at the path, such as for a database in memory.
    opened: Option<FileId>,
    since: Instant,
    /// The milliseconds from `since` to the last verification.
    verified: AtomicU64,
}

/// What identifies a file, whatever its name: its device and its inode.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileId([u64; 2]);

impl FileId {
    /// The file at a path, which may be a symbolic link.
    #[cfg(unix)]
    fn at(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt as _;
        fs::metadata(path).map(|file| Self([file.dev(), file.ino()]))
    }

    /// Whether the path has a file: elsewhere, an open file can hardly be replaced.
    #[cfg(not(unix))]
    fn at(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|_| Self([0; 2]))
    }
}

impl DatabaseFile {
    /// The file of a database that has just been opened: `configured` is its name in the options,
    /// `resolved` the name that SQLite uses, without symbolic links.
    pub(crate) fn opened(configured: &Path, resolved: String) -> Self {
        let opened = FileId::at(Path::new(&resolved)).ok();
        // A symbolic link can be changed to lead to another file. A name with the scheme `file:`
        // names no file itself.
        let configured = path::absolute(configured).unwrap_or_default();
        let is_same = FileId::at(&configured).ok() == opened;
        let path = if is_same { configured } else { PathBuf::from(&resolved) };
        Self { path, resolved, opened, since: Instant::now(), verified: AtomicU64::new(0) }
    }

    /// The name that SQLite uses, without symbolic links.
    pub(crate) fn resolved(&self) -> &str {
        &self.resolved
    }

    /// Verifies before a write that the path still leads to the file.
    pub(crate) fn verify(&self) -> Result<(), sqlx::Error> {
        let Some(opened) = self.opened else { return Ok(()) };
        match FileId::at(&self.path) {
            Ok(file) if file != opened => {}
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Ok(_) | Err(_) => return Ok(()),
        }
        Err(sqlx::Error::AnyDriverError(Box::new(FileChanged { path: self.path.clone() })))
    }

    /// Verifies the file unless it was verified within the last half second.
    pub(crate) fn verify_sometimes(&self) -> Result<(), sqlx::Error> {
        let now = self.since.elapsed().as_millis().try_into().unwrap_or(u64::MAX);
        let next = self.verified.load(Ordering::Relaxed);
        if u128::from(now.saturating_sub(next)) < VERIFIED_EVERY.as_millis() {
            return Ok(());
        }
        self.verify()?;
        self.verified.store(now, Ordering::Relaxed);
        Ok(())
    }
}
