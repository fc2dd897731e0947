//! Files that the agent sends to people: only from the folders that the operator named.
//!
//! This process may be allowed to read more than the agent, so the agent must not lead it anywhere: a link, a swapped folder
//! or a pipe. A file is therefore opened first and judged afterwards, by the path that the kernel knows for the open file. A
//! file with a second name is refused, since the other name may be outside.

use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::refusal::Refusal;

/// Bytes of one file, as on the platform.
const FILE: u64 = 25 << 20;

/// Bytes of all files of a message.
const ALL: usize = 50 << 20;

/// `O_NONBLOCK`: opening a pipe does not wait for a writer.
#[cfg(any(target_os = "linux", target_os = "android"))]
const NONBLOCK: i32 = 0o4000;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const NONBLOCK: i32 = 0x4;

/// A file that was read.
#[derive(Debug)]
pub(super) struct Attachment {
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
}

/// Reads files from these folders.
pub(super) fn read(folders: &[PathBuf], paths: &[PathBuf]) -> Result<Vec<Attachment>, Refusal> {
    let folders: Vec<PathBuf> = folders.iter().filter_map(|folder| folder.canonicalize().ok()).collect();
    let (mut files, mut all) = (Vec::new(), 0);
    for path in paths {
        let file = one(&folders, path)?;
        all += file.bytes.len();
        if all > ALL {
            return Err(refuse(path, &format!("together with the others it has more than {ALL} bytes")));
        }
        files.push(file);
    }
    Ok(files)
}

fn one(folders: &[PathBuf], path: &Path) -> Result<Attachment, Refusal> {
    if !path.is_absolute() {
        return Err(refuse(path, "it is not an absolute path"));
    }
    let opened = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path);
    let file = opened.map_err(|error| refuse(path, &format!("it cannot be opened ({})", error.kind())))?;
    // The same words for all files elsewhere: which ones exist is none of the agent's business.
    let outside = || refuse(path, "it is not in a folder that files may be sent from");
    let real = real_path(&file, path).map_err(|_| outside())?;
    if !folders.iter().any(|folder| real.starts_with(folder)) {
        return Err(outside());
    }
    let metadata = file.metadata().map_err(|_| refuse(path, "it cannot be read"))?;
    if !metadata.is_file() {
        return Err(refuse(path, "it is not a regular file"));
    }
    if metadata.nlink() > 1 {
        return Err(refuse(path, "it has a second name (a hard link); copy it"));
    }
    let mut bytes = Vec::new();
    file.take(FILE + 1).read_to_end(&mut bytes).map_err(|_| refuse(path, "it cannot be read"))?;
    if bytes.len() as u64 > FILE {
        return Err(refuse(path, &format!("it has more than {FILE} bytes")));
    }
    let name = real.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = name.chars().map(|c| if c.is_control() || c == '"' || c == '\\' { '_' } else { c }).collect();
    Ok(Attachment { name, bytes })
}

/// The path of an open file, as the kernel knows it.
fn real_path(file: &File, path: &Path) -> std::io::Result<PathBuf> {
    match cfg!(any(target_os = "linux", target_os = "android")) {
        true => fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())),
        false => path.canonicalize(),
    }
}

fn refuse(path: &Path, what: &str) -> Refusal {
    let name: String = path.to_string_lossy().chars().filter(|c| !c.is_control()).take(200).collect();
    Refusal::new(
        format!("{name:?} is not sent: {what}"),
        "put a copy into a folder that files may be sent from (`tools.files`), or describe the content in the message",
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_regular_files_of_the_named_folders_are_sent() {
        let root = tempfile::tempdir().unwrap();
        let (inside, outside) = (root.path().join("in"), root.path().join("out"));
        for folder in [&inside, &outside] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(inside.join("report.txt"), "text").unwrap();
        fs::write(outside.join("secret"), "token").unwrap();
        symlink(outside.join("secret"), inside.join("link")).unwrap();
        symlink(&outside, inside.join("folder")).unwrap();
        symlink(inside.join("report.txt"), inside.join("good")).unwrap();
        fs::hard_link(outside.join("secret"), inside.join("hard")).unwrap();
        let owner = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, inside.join("pipe"), rustix::fs::FileType::Fifo, owner, 0)
            .unwrap();
        let folders = [inside.clone(), root.path().join("missing")];
        let read = |path: PathBuf| read(&folders, &[path]);
        let sent = read(inside.join("report.txt")).unwrap();
        assert_eq!((sent[0].name.as_str(), sent[0].bytes.as_slice()), ("report.txt", &b"text"[..]));
        assert_eq!(
            read(inside.join("good")).unwrap()[0].name,
            "report.txt",
            "a link within the folder is fine"
        );
        for path in [
            "in/link",
            "in/folder/secret",
            "in/hard",
            "in/pipe",
            "in",
            "out/secret",
            "in/../out/secret",
            "in/missing",
        ] {
            let refused = read(root.path().join(path)).unwrap_err();
            assert!(!refused.reason.contains("token"), "{refused:?}");
        }
        assert!(read("in/report.txt".into()).is_err(), "relative");
        assert!(super::read(&[], &[inside.join("report.txt")]).is_err(), "no folder is named");
    }

    #[test]
    fn a_large_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large");
        File::create(&path).unwrap().set_len(FILE + 1).unwrap();
        let refused = read(&[folder.path().to_owned()], &[path]).unwrap_err();
        assert!(refused.reason.contains("more than"), "{refused:?}");
    }
}
