//! The cache of pulled blobs, on disk, by digest.
//!
//! A file is named by its digest and hashed whenever it is read: a file that was changed, or cut off by a full disk, is removed
//! and pulled again. So the folder need not be trusted, and two processes can share it. Files appear whole, by rename. The
//! cache never fails a pull: a blob that cannot be cached is pulled again the next time, and the log says so.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tracing::warn;

use crate::reference::Digest;

/// The folder, if there is one.
#[derive(Debug, Clone)]
pub(crate) struct Cache(Option<Arc<PathBuf>>);

// === impl Cache ===

impl Cache {
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        Self(folder.map(Arc::new))
    }

    /// Returns the blob of this digest, if it is cached and not larger than `most`.
    pub(crate) async fn get(&self, digest: &Digest, most: u64) -> Option<Bytes> {
        let path = self.path(digest)?;
        let digest = digest.clone();
        tokio::task::spawn_blocking(move || {
            let mut bytes = Vec::new();
            // One byte more reveals a larger file.
            fs::File::open(&path).ok()?.take(most.saturating_add(1)).read_to_end(&mut bytes).ok()?;
            if bytes.len() as u64 > most || Digest::of(&bytes) != digest {
                warn!(path = %path.display(), "cached file does not have its digest; removing it");
                let _ = fs::remove_file(&path);
                return None;
            }
            Some(bytes.into())
        })
        .await
        .ok()?
    }

    /// Caches a blob.
    pub(crate) async fn put(&self, digest: &Digest, bytes: Bytes) {
        let Some(path) = self.path(digest) else { return };
        let shown = path.display().to_string();
        let stored = tokio::task::spawn_blocking(move || store(&path, &bytes)).await;
        if let Ok(Err(error)) = stored {
            warn!(path = shown, %error, "cannot cache what was pulled");
        }
    }

    fn path(&self, digest: &Digest) -> Option<PathBuf> {
        Some(self.0.as_deref()?.join(format!("sha256-{}", digest.hex())))
    }
}

fn store(path: &std::path::Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)?;
    let mut draft = tempfile::NamedTempFile::new_in(folder)?;
    draft.write_all(bytes)?;
    draft.as_file().sync_all()?;
    draft.persist(path)?;
    Ok(())
}
