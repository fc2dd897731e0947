//! Free memory of the [`heap`](crate::heap), in the order of its addresses.
//!
//! An extent begins with its size and the address of the next one. Neighbours are joined, so extents never touch. A block is
//! taken from the first extent that has room; there are few, because only blocks above the small classes and their runs come
//! from here.

use core::ptr;

/// The unit of extents.
pub(crate) const GRAIN: usize = 16;
/// What is requested from the host at least, and at most for later.
const LEAST: usize = 128 << 10;
const MOST: usize = 1 << 20;

/// Where memory comes from.
pub(crate) trait Source {
    /// Returns the address and the size of new memory, both multiples of [`GRAIN`]: `wanted` bytes or more, or at least
    /// `needed` if there are not as many.
    fn more(&mut self, needed: usize, wanted: usize) -> Option<(usize, usize)>;
}

/// The free memory of a heap.
pub(crate) struct Extents<S> {
    pub(crate) source: S,
    /// The address of the first extent; 0 if the list is empty.
    first: usize,
    /// The bytes that came from the source, and the end of the last of them.
    taken: usize,
    end: usize,
}

/// The head of an extent.
#[derive(Clone, Copy)]
struct Extent {
    size: usize,
    /// The address of the next extent; 0 for the last.
    next: usize,
}

/// The address of an extent before, or 0; that of the extent, and its head.
type Found = (usize, usize, Extent);

/// The bytes up to the next multiple of a power of two.
pub(crate) const fn gap(number: usize, unit: usize) -> usize {
    number.wrapping_neg() & (unit - 1)
}

/// Whole grains. A size is below half of the address space, so this does not overflow.
pub(crate) const fn grains(size: usize) -> usize {
    size + gap(size, GRAIN)
}

/// The memory at an address.
pub(crate) fn at<T>(address: usize) -> *mut T {
    ptr::with_exposed_provenance_mut(address)
}

// === impl Extents ===

impl<S> Extents<S> {
    pub(crate) const fn new(source: S) -> Self {
        Self { source, first: 0, taken: 0, end: 0 }
    }

    /// All of them.
    #[cfg(test)]
    pub(crate) fn all(&self) -> Vec<(usize, usize)> {
        let (mut found, mut start) = (Vec::new(), self.first);
        while start != 0 {
            let Extent { size, next } = read(start);
            found.push((start, size));
            start = next;
        }
        found
    }
}

impl<S: Source> Extents<S> {
    /// Takes a block of whole grains from the first extent that has room.
    pub(crate) fn take(&mut self, size: usize, align: usize) -> Option<usize> {
        let (before, start, Extent { size: whole, next }) = match self.find(size, align) {
            Some(found) => found,
            None => self.grow(size, align)?,
        };
        let gap = gap(start, align);
        let (block, rest) = (start + gap, whole - gap - size);
        let mut following = next;
        if rest > 0 {
            following = block + size;
            write(following, Extent { size: rest, next });
        }
        if gap > 0 {
            write(start, Extent { size: gap, next: following });
            following = start;
        }
        self.link(before, following);
        Some(block)
    }

    /// The first extent with room for such a block, and the one before it.
    fn find(&self, size: usize, align: usize) -> Option<Found> {
        let (mut before, mut start) = (0, self.first);
        while start != 0 {
            let extent = read(start);
            // Without an overflow at the end of the address space.
            if extent.size.checked_sub(gap(start, align)).is_some_and(|room| room >= size) {
                return Some((before, start, extent));
            }
            (before, start) = (start, extent.next);
        }
        None
    }

    /// Makes memory an extent, joined with its neighbours.
    pub(crate) fn give(&mut self, start: usize, size: usize) {
        let (mut before, mut next) = (0, self.first);
        while next != 0 && next < start {
            (before, next) = (next, read(next).next);
        }
        let mut extent = Extent { size, next };
        if next != 0 && start + size == next {
            let Extent { size: more, next } = read(next);
            extent = Extent { size: size + more, next };
        }
        if before != 0 {
            let previous = read(before);
            if before + previous.size == start {
                write(before, Extent { size: previous.size + extent.size, next: extent.next });
                return;
            }
        }
        write(start, extent);
        self.link(before, start);
    }

    /// Changes the size of a block where it is, if that is possible.
    pub(crate) fn resize(&mut self, start: usize, had: usize, wants: usize) -> bool {
        if wants <= had {
            if wants < had {
                self.give(start + wants, had - wants);
            }
            return true;
        }
        let (mut before, mut next) = (0, self.first);
        while next != 0 && next < start {
            (before, next) = (next, read(next).next);
        }
        if next != start + had {
            return false;
        }
        let (extent, more) = (read(next), wants - had);
        if extent.size < more {
            return false;
        }
        let mut following = extent.next;
        if extent.size > more {
            following = next + more;
            write(following, Extent { size: extent.size - more, next: extent.next });
        }
        self.link(before, following);
        true
    }

    fn link(&mut self, before: usize, next: usize) {
        if before == 0 {
            self.first = next;
        } else {
            write(before, Extent { next, ..read(before) });
        }
    }

    /// Requests memory until there is such an extent.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, size: usize, align: usize) -> Option<Found> {
        // New memory usually follows the last, so what is free there counts.
        let (mut free, mut next) = (0, self.first);
        while next != 0 {
            let extent = read(next);
            free = if next + extent.size == self.end { extent.size } else { 0 };
            next = extent.next;
        }
        self.request((size + align).saturating_sub(free))?;
        if let Some(found) = self.find(size, align) {
            return Some(found);
        }
        self.request(size + align)?;
        self.find(size, align)
    }

    /// Requests a quarter of what there is, so that requests are few, or only what is needed near the limit.
    fn request(&mut self, needed: usize) -> Option<()> {
        let later = (self.taken / 4).clamp(LEAST, MOST);
        let (start, size) = self.source.more(needed.max(GRAIN), needed.max(later))?;
        self.taken += size;
        self.end = start + size;
        self.give(start, size);
        Some(())
    }
}

fn read(start: usize) -> Extent {
    // SAFETY: invariant 1 of the heap: the address is that of an extent, and each has a head.
    unsafe { at::<Extent>(start).read() }
}

fn write(start: usize, extent: Extent) {
    // SAFETY: invariant 1 of the heap: the address is that of free memory, aligned and large enough.
    unsafe { at::<Extent>(start).write(extent) }
}
