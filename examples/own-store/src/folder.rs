//! The folder of the records: its lock, and the files in it.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use idempotent_core::{Record, RecordId, transition::Change};

use crate::entry::Entry;

/// A folder with a file for each record, named after its id, and a lock file.
#[derive(Clone)]
pub(crate) struct Folder(Arc<Path>);

impl Folder {
    pub(crate) fn create(folder: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        Ok(Self(folder.into()))
    }

    /// Waits until no other thread and no other process has the folder locked. It is unlocked when
    /// the file is closed: when it is dropped, or when its process dies.
    pub(crate) fn lock(&self) -> io::Result<File> {
        let file = File::create(self.0.join("lock"))?;
        file.lock()?;
        Ok(file)
    }

    /// Reads a record.
    ///
    /// # Errors
    /// Fails with [`io::ErrorKind::InvalidData`] if the file is not a record.
    pub(crate) fn read(&self, id: &RecordId) -> io::Result<Option<Record>> {
        match fs::read(self.path(id)) {
            Ok(bytes) => Entry::decode(&bytes).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes the change that the state machine has decided.
    pub(crate) fn apply(&self, id: &RecordId, change: Change) -> io::Result<()> {
        match change {
            Change::Keep => Ok(()),
            Change::Put(record) => {
                // A process that dies while it writes leaves the record as it was.
                let (path, new) = (self.path(id), self.0.join(format!("{id}.new")));
                fs::write(&new, Entry::encode(record)?)?;
                fs::rename(new, path)
            }
            Change::Remove => fs::remove_file(self.path(id)),
        }
    }

    /// The ids of all records.
    pub(crate) fn ids(&self) -> io::Result<Vec<RecordId>> {
        let mut ids = Vec::new();
        for file in fs::read_dir(&self.0)? {
            // The lock, and what other processes have not finished writing, have other names.
            ids.extend(file?.file_name().to_str().and_then(|name| name.parse::<RecordId>().ok()));
        }
        Ok(ids)
    }

    fn path(&self, id: &RecordId) -> PathBuf {
        self.0.join(id.to_string())
    }
}
