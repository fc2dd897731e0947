//! Finds the component in a layer: the layer itself, or the `.wasm` file in a tar, gzipped or not.
//!
//! The first bytes of a layer say what it is, not its manifest. Nothing is written to disk: the one file is read into memory,
//! and everything that is unpacked on the way to it counts towards the bound, so that a layer of a megabyte cannot keep a core
//! busy with its terabyte.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::read::GzDecoder;

/// The first bytes of WebAssembly, component or module.
const WASM: &[u8] = b"\0asm";
/// The first bytes of gzip.
const GZIP: &[u8] = &[0x1f, 0x8b];
/// How many times the bound may be unpacked for one component: images contain other files too.
const RATIO: u64 = 4;

/// Why a layer cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// It unpacks to more than the bound.
    TooLarge,
    /// It cannot be unpacked, or holds several components.
    Odd(String),
}

/// Returns the component in a layer; `None` if the layer contains no component.
pub(crate) fn component(layer: &Bytes, most: u64) -> Result<Option<Bytes>, Error> {
    if layer.starts_with(WASM) {
        return Ok(Some(layer.clone()));
    }
    match layer.starts_with(GZIP) {
        true => {
            let mut inside =
                Bounded { inner: GzDecoder::new(layer.as_ref()), left: most.saturating_mul(RATIO) };
            let mut first = [0; WASM.len()];
            inside.read_exact(&mut first).map_err(|error| odd(&error))?;
            let mut whole = first.as_slice().chain(inside);
            match first == WASM {
                true => file(&mut whole, most).map(Some),
                false => archive(whole, most),
            }
        }
        false => archive(layer.as_ref(), most),
    }
}

fn archive(archive: impl Read, most: u64) -> Result<Option<Bytes>, Error> {
    let mut found = None;
    let mut archive = tar::Archive::new(archive);
    for entry in archive.entries().map_err(|error| odd(&error))? {
        let mut entry = entry.map_err(|error| odd(&error))?;
        let is_wasm = entry.path_bytes().ends_with(b".wasm") && entry.header().entry_type().is_file();
        if !is_wasm {
            continue;
        }
        if entry.size() > most {
            return Err(Error::TooLarge);
        }
        if found.replace(file(&mut entry, most)?).is_some() {
            return Err(Error::Odd("more than one .wasm file; push the component by itself".into()));
        }
    }
    Ok(found)
}

fn file(file: &mut impl Read, most: u64) -> Result<Bytes, Error> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| odd(&error))?;
    match bytes.len() as u64 > most {
        true => Err(Error::TooLarge),
        false => Ok(bytes.into()),
    }
}

fn odd(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::FileTooLarge => Error::TooLarge,
        kind => Error::Odd(format!("its layer is neither WebAssembly nor a tar that can be read ({kind})")),
    }
}

/// Fails after a number of bytes, where `take` would just end.
struct Bounded<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(count as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0 and more";

    fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        for (name, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, name, *content).expect("memory");
        }
        archive.into_inner().expect("memory")
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    }

    fn unpacked(layer: Vec<u8>) -> Result<Option<Bytes>, Error> {
        component(&layer.into(), 1 << 20)
    }

    #[test]
    fn finds_the_component_however_it_is_packed() {
        let long = format!("{}/plugin.wasm", "folder/".repeat(40));
        let image = tar(&[("etc/os-release", b"x".as_slice()), (&long, COMPONENT), ("b.wasm.txt", b"y")]);
        for layer in [COMPONENT.to_vec(), gzip(COMPONENT), image.clone(), gzip(&image)] {
            assert_eq!(unpacked(layer), Ok(Some(Bytes::from_static(COMPONENT))));
        }
        assert_eq!(unpacked(tar(&[("a.txt", b"a".as_slice())])), Ok(None));
    }

    #[test]
    fn rejects_several_components_and_broken_archives() {
        let two = tar(&[("a.wasm", COMPONENT), ("b.wasm", COMPONENT)]);
        assert!(matches!(unpacked(two), Err(Error::Odd(what)) if what.contains("more than one")));
        let image = gzip(&tar(&[("a.wasm", COMPONENT)]));
        let cut = image[..image.len() / 2].to_vec();
        for layer in
            [b"#!/bin/sh\necho this is not an archive, whatever its name says\n".repeat(20), cut, gzip(b"x")]
        {
            assert!(matches!(unpacked(layer), Err(Error::Odd(_))));
        }
    }

    #[test]
    fn a_decompression_bomb_stops_at_the_bound() {
        let zeros = vec![0; 8 << 20];
        assert_eq!(unpacked(gzip(&tar(&[("a.txt", &zeros), ("b.wasm", COMPONENT)]))), Err(Error::TooLarge));
        assert_eq!(unpacked(gzip(&tar(&[("a.wasm", &zeros)]))), Err(Error::TooLarge));
        let mut wasm = COMPONENT.to_vec();
        wasm.extend(zeros);
        assert_eq!(unpacked(gzip(&wasm)), Err(Error::TooLarge));
    }
}
