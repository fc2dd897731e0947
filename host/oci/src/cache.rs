//! What was pulled, on disk, by its digest.
//!
//! A file's name is what its content must hash to, and it is hashed whenever it is read: a file that somebody else
//! changed, or that a full disk cut, is removed and pulled again. So the folder needs no trust, and two processes can share
//! it. Files appear whole, by rename. Nothing here fails a pull: what cannot be kept is pulled again the next time, and the
//! log says so.

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

    /// What has this digest, if it is there and is no larger.
    pub(crate) async fn get(&self, digest: &Digest, most: u64) -> Option<Bytes> {
        let path = self.path(digest)?;
        let digest = digest.clone();
        tokio::task::spawn_blocking(move || {
            let mut bytes = Vec::new();
            // One byte more tells a larger one.
            fs::File::open(&path).ok()?.take(most.saturating_add(1)).read_to_end(&mut bytes).ok()?;
            if bytes.len() as u64 > most || Digest::of(&bytes) != digest {
                warn!(path = %path.display(), "a file in the cache is not what its name says; it is removed");
                let _ = fs::remove_file(&path);
                return None;
            }
            Some(bytes.into())
        })
        .await
        .ok()?
    }

    /// Keeps it.
    pub(crate) async fn put(&self, digest: &Digest, bytes: Bytes) {
        let Some(path) = self.path(digest) else { return };
        let shown = path.display().to_string();
        let kept = tokio::task::spawn_blocking(move || keep(&path, &bytes)).await;
        if let Ok(Err(error)) = kept {
            warn!(path = shown, %error, "what was pulled is not kept");
        }
    }

    fn path(&self, digest: &Digest) -> Option<PathBuf> {
        Some(self.0.as_deref()?.join(format!("sha256-{}", digest.hex())))
    }
}

fn keep(path: &std::path::Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)?;
    let mut draft = tempfile::NamedTempFile::new_in(folder)?;
    draft.write_all(bytes)?;
    draft.as_file().sync_all()?;
    draft.persist(path)?;
    Ok(())
}
