//! The heap of a component.
//!
//! A turn's instance lives for one turn and has one thread, so the heap needs no locks and gives nothing back to the host.
//! The general allocator of the standard library took a quarter of a small turn's instructions in the guest.
//!
//! - **Small blocks**, up to [`SMALL`] bytes, are rounded up to a class: a power of two or the step halfway to it. Each class
//!   has a list of free blocks, so taking one is a pop and giving it back a push. New ones are cut from a run.
//! - **Everything else** is cut from free extents, which are in the order of their addresses and are joined again with
//!   their neighbours, so a turn that streams for an hour needs the memory of what it holds and not of what it said. A block
//!   grows in place if the extent behind it is free.
//!
//! The first extent is part of the component, so a small turn does not grow its memory. More is requested from the host; if
//! the host refuses, which it does at the executor's limit, the allocation fails, and the turn with it.
//!
//! `unsafe` cannot be avoided here, since `GlobalAlloc` is an unsafe trait. These invariants make it sound; the tests compare the
//! heap with a model that knows every block:
//!
//! 1. An extent is free memory that nothing else refers to; extents never touch or overlap. Address and size are multiples of
//!    [`GRAIN`], which has room for an extent's head.
//! 2. A block belongs to a class or to the extents by its layout alone, at allocation and at its end alike. So blocks need no
//!    heads.
//! 3. There is one thread, and nothing in here calls code that allocates. So `Heap` is never entered twice.
//!
//! A component with an allocator of its own turns the feature `heap` off.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr;

use crate::extents::{Extents, GRAIN, Source, at, gap, grains};

/// The largest block that has a class.
const SMALL: usize = 2 << 10;
/// What blocks of a class are aligned to.
const SMALL_ALIGN: usize = 8;
/// 16, 24, 32, 48, … up to [`SMALL`].
const CLASSES: usize = 15;
/// What small blocks are cut from.
const RUN: usize = 4 << 10;

/// The allocator of a component.
pub(crate) struct Heap<S>(UnsafeCell<State<S>>);

struct State<S> {
    /// The first free block of each class; a free block holds the address of the next one.
    free: [usize; CLASSES],
    /// The rest of the run.
    next: usize,
    end: usize,
    extents: Extents<S>,
}

// SAFETY: components have one thread; the global instance exists only in builds without atomics.
unsafe impl<S> Sync for Heap<S> {}

/// The class of a size up to [`SMALL`], and the size of its blocks.
const fn class(size: usize) -> (usize, usize) {
    if size <= GRAIN {
        return (0, GRAIN);
    }
    let log = usize::BITS as usize - 1 - (size - 1).leading_zeros() as usize;
    let (low, step) = (1 << log, 1 << (log - 1));
    let above = (log - 4) * 2;
    if size <= low + step { (above + 1, low + step) } else { (above + 2, low * 2) }
}

const fn is_small(layout: &Layout) -> bool {
    layout.size() <= SMALL && layout.align() <= SMALL_ALIGN
}

// === impl Heap ===

impl<S> Heap<S> {
    /// An empty heap.
    #[must_use]
    pub(crate) const fn new(source: S) -> Self {
        let free = [0; CLASSES];
        Self(UnsafeCell::new(State { free, next: 0, end: 0, extents: Extents::new(source) }))
    }
}

// SAFETY: by the invariants in the module's head, a block is not given out twice, and it is as large and as aligned as its
// layout wants: blocks of a class are at multiples of 8, all others at multiples of their alignment.
unsafe impl<S: Source> GlobalAlloc for Heap<S> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: invariant 3.
        let state = unsafe { &mut *self.0.get() };
        let taken = if is_small(&layout) {
            state.take_small(layout.size())
        } else {
            state.extents.take(grains(layout.size().max(1)), layout.align().max(GRAIN))
        };
        taken.map_or(ptr::null_mut(), at)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: invariant 3.
        let state = unsafe { &mut *self.0.get() };
        let address = block.expose_provenance();
        if is_small(&layout) {
            let (class, _) = class(layout.size());
            // SAFETY: the class exists for each small size, and the block has room for an address.
            unsafe {
                let head = state.free.get_unchecked_mut(class);
                at::<usize>(address).write(*head);
                *head = address;
            }
        } else {
            state.extents.give(address, grains(layout.size().max(1)));
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the size fits this alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let is_same = match (is_small(&layout), is_small(&wanted)) {
            (true, true) => class(layout.size()) == class(size),
            (false, false) => {
                // SAFETY: invariant 3.
                let state = unsafe { &mut *self.0.get() };
                state.extents.resize(
                    block.expose_provenance(),
                    grains(layout.size().max(1)),
                    grains(size.max(1)),
                )
            }
            _ => false,
        };
        if is_same {
            return block;
        }
        // SAFETY: both blocks have room for the smaller of the two sizes, and the old one is not used again.
        unsafe {
            let moved = self.alloc(wanted);
            if !moved.is_null() {
                ptr::copy_nonoverlapping(block, moved, layout.size().min(size));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

// === impl State ===

impl<S: Source> State<S> {
    fn take_small(&mut self, size: usize) -> Option<usize> {
        let (class, bytes) = class(size);
        // SAFETY: the class exists for each small size; a block in the list is free and holds the next address.
        unsafe {
            let head = self.free.get_unchecked_mut(class);
            if *head != 0 {
                let block = *head;
                *head = at::<usize>(block).read();
                return Some(block);
            }
        }
        if self.end - self.next < bytes {
            self.run(bytes)?;
        }
        let block = self.next;
        self.next += bytes;
        Some(block)
    }

    /// Begins a run with room for a block.
    #[cold]
    #[inline(never)]
    fn run(&mut self, bytes: usize) -> Option<()> {
        // Near the limit there may be room for the block, but not for a run.
        let whole = self.extents.take(RUN, GRAIN).map(|start| (start, RUN));
        let (start, size) = match whole {
            Some(run) => run,
            None => (self.extents.take(grains(bytes), GRAIN)?, grains(bytes)),
        };
        // The last run ends at a multiple of the grain.
        let (left, end) = (self.next + gap(self.next, GRAIN), self.end);
        (self.next, self.end) = (start, start + size);
        if left < end {
            self.extents.give(left, end - left);
        }
        Some(())
    }
}

#[cfg(target_arch = "wasm32")]
mod host {
    //! Memory from the host. Other allocators in the component may request memory too, so it need not be in one piece.

    use core::arch::wasm32::memory_grow;
    use core::cell::UnsafeCell;

    use super::Heap;
    use crate::extents::Source;

    /// What a small turn needs.
    const ROOM: usize = 48 << 10;
    /// The unit of the host.
    const PAGE: usize = 64 << 10;

    struct Host {
        began: bool,
    }

    #[repr(align(16))]
    struct Room(UnsafeCell<[u8; ROOM]>);

    // SAFETY: only the heap uses it, from one thread.
    unsafe impl Sync for Room {}

    static FIRST: Room = Room(UnsafeCell::new([0; ROOM]));

    #[global_allocator]
    static HEAP: Heap<Host> = Heap::new(Host { began: false });

    impl Source for Host {
        fn more(&mut self, needed: usize, wanted: usize) -> Option<(usize, usize)> {
            if !self.began {
                self.began = true;
                if needed <= ROOM {
                    return Some((FIRST.0.get().expose_provenance(), ROOM));
                }
            }
            let grown = |bytes: usize| {
                let pages = bytes.div_ceil(PAGE);
                let before = memory_grow(0, pages);
                (before != usize::MAX).then(|| (before * PAGE, pages * PAGE))
            };
            grown(wanted).or_else(|| grown(needed))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Memory of a fixed size, in pieces that do not touch.
    struct Limited {
        pieces: Vec<(usize, usize)>,
        given: usize,
    }

    /// A heap, and the memory below it.
    struct Rig {
        heap: Heap<Limited>,
        _memory: Vec<Box<[u128]>>,
    }

    /// The bytes that a block is filled with.
    type Blocks = BTreeMap<usize, (Layout, u8)>;

    impl Source for Limited {
        fn more(&mut self, needed: usize, _: usize) -> Option<(usize, usize)> {
            let found = self.pieces.iter().position(|(_, size)| *size >= needed)?;
            let piece = self.pieces.remove(found);
            self.given += piece.1;
            Some(piece)
        }
    }

    impl Rig {
        fn new(pieces: &[usize]) -> Self {
            let mut memory: Vec<_> =
                pieces.iter().map(|bytes| vec![0_u128; bytes / 16].into_boxed_slice()).collect();
            let pieces =
                memory.iter_mut().map(|piece| (piece.as_mut_ptr().expose_provenance(), piece.len() * 16));
            let source = Limited { pieces: pieces.collect(), given: 0 };
            Self { heap: Heap::new(source), _memory: memory }
        }

        fn alloc(&self, layout: Layout) -> Option<usize> {
            let block = unsafe { self.heap.alloc(layout) };
            (!block.is_null()).then(|| block.expose_provenance())
        }

        fn free(&self, block: usize, layout: Layout) {
            unsafe { self.heap.dealloc(at(block), layout) }
        }

        fn resize(&self, block: usize, layout: Layout, size: usize) -> Option<usize> {
            let moved = unsafe { self.heap.realloc(at(block), layout, size) };
            (!moved.is_null()).then(|| moved.expose_provenance())
        }

        /// The free extents, in order.
        fn extents(&self) -> Vec<(usize, usize)> {
            unsafe { &*self.heap.0.get() }.extents.all()
        }

        fn given(&self) -> usize {
            unsafe { &*self.heap.0.get() }.extents.source.given
        }
    }

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    fn fill(block: usize, bytes: usize, with: u8) {
        unsafe { ptr::write_bytes(at::<u8>(block), with, bytes) }
    }

    /// Fails unless the block is aligned, still has its bytes, and touches no other.
    fn check(blocks: &Blocks, extents: &[(usize, usize)]) {
        let mut last = 0;
        for (block, (layout, with)) in blocks {
            assert_eq!(block % layout.align(), 0, "{layout:?}");
            assert!(last <= *block, "blocks overlap at {block:#x}");
            let bytes = unsafe { std::slice::from_raw_parts(at::<u8>(*block), layout.size()) };
            assert!(bytes.iter().all(|byte| byte == with), "{layout:?} was overwritten");
            last = block + layout.size();
        }
        for pair in extents.windows(2) {
            let [(start, size), (next, _)] = pair else { panic!("a pair") };
            assert!(start + size < *next, "extents touch or are out of order");
        }
        for (start, size) in extents {
            assert!(start % GRAIN == 0 && size % GRAIN == 0 && *size > 0);
            let inside = blocks.range(..start + size).next_back();
            let is_free = inside.is_none_or(|(block, (layout, _))| block + layout.size() <= *start);
            assert!(is_free, "an extent overlaps a block");
        }
    }

    /// Numbers that are the same in each run.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, bound: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) as usize % bound
        }

        /// A size of each magnitude alike, zero too.
        fn size(&mut self) -> usize {
            let bound = 1 << self.below(17);
            self.below(bound)
        }
    }

    #[test]
    fn blocks_are_apart_aligned_and_keep_their_bytes() {
        for seed in 1..=20 {
            let rig = Rig::new(&[48 << 10, 256 << 10, 64 << 10, 512 << 10]);
            let (mut numbers, mut blocks, mut failed) =
                (Numbers(0x9e37_79b9_7f4a_7c15 ^ seed), Blocks::new(), 0);
            for step in 0..4_000 {
                let with = step as u8;
                // Now more blocks begin than end, now fewer.
                let begins = numbers.below(10) < if step / 500 % 2 == 0 { 8 } else { 2 };
                if begins || blocks.is_empty() {
                    let layout = layout(numbers.size(), 1 << numbers.below(10));
                    match rig.alloc(layout) {
                        Some(block) => {
                            fill(block, layout.size(), with);
                            let before = blocks.insert(block, (layout, with));
                            assert!(before.is_none_or(|(layout, _)| layout.size() == 0), "given out twice");
                        }
                        None => failed += 1,
                    }
                    continue;
                }
                let chosen = numbers.below(blocks.len());
                let (&block, &(old, was)) = blocks.iter().nth(chosen).unwrap();
                blocks.remove(&block);
                if numbers.below(2) == 0 {
                    rig.free(block, old);
                    continue;
                }
                let size = numbers.size();
                match rig.resize(block, old, size) {
                    Some(moved) => {
                        let kept =
                            unsafe { std::slice::from_raw_parts(at::<u8>(moved), old.size().min(size)) };
                        assert!(kept.iter().all(|byte| *byte == was), "lost in {old:?} to {size}");
                        fill(moved, size, with);
                        blocks.insert(moved, (layout(size, old.align()), with));
                    }
                    // The old block stays.
                    None => _ = blocks.insert(block, (old, was)),
                }
                if step % 50 == 0 {
                    check(&blocks, &rig.extents());
                }
            }
            check(&blocks, &rig.extents());
            assert!(failed > 0, "the memory was never used up");
            for (block, (layout, _)) in std::mem::take(&mut blocks) {
                rig.free(block, layout);
            }
            check(&blocks, &rig.extents());
        }
    }

    #[test]
    fn memory_that_is_used_up_is_refused_and_can_be_used_again() {
        let rig = Rig::new(&[64 << 10]);
        let large = layout(8 << 10, 8);
        let blocks: Vec<_> = std::iter::from_fn(|| rig.alloc(large)).collect();
        assert_eq!(blocks.len(), 8);
        assert_eq!(rig.alloc(layout(1, 1)), None);
        for block in blocks {
            rig.free(block, large);
        }
        assert_eq!(rig.extents().iter().map(|(_, size)| size).collect::<Vec<_>>(), [&(64 << 10)]);
        assert!(rig.alloc(layout(64 << 10, 16)).is_some());
    }

    #[test]
    fn the_last_bytes_are_given_to_small_blocks() {
        let rig = Rig::new(&[RUN + 512]);
        let small = layout(48, 8);
        let blocks = std::iter::from_fn(|| rig.alloc(small)).count();
        assert!(blocks >= (RUN + 512) / 48 - 1, "{blocks}");
    }

    #[test]
    fn a_block_grows_and_shrinks_in_place_if_it_can() {
        let rig = Rig::new(&[256 << 10]);
        let block = rig.alloc(layout(16 << 10, 1)).unwrap();
        assert_eq!(rig.resize(block, layout(16 << 10, 1), 100 << 10), Some(block));
        let behind = rig.alloc(layout(8 << 10, 1)).unwrap();
        let moved = rig.resize(block, layout(100 << 10, 1), 110 << 10).unwrap();
        assert_ne!(moved, block);
        assert_eq!(rig.resize(behind, layout(8 << 10, 1), 4 << 10), Some(behind));
        let small = rig.alloc(layout(33, 1)).unwrap();
        assert_eq!(rig.resize(small, layout(33, 1), 48), Some(small), "the class is the same");
        assert_ne!(rig.resize(small, layout(48, 1), 49), Some(small));
    }

    #[test]
    fn a_failed_resize_leaves_the_block() {
        let rig = Rig::new(&[64 << 10]);
        let block = rig.alloc(layout(40 << 10, 8)).unwrap();
        fill(block, 40 << 10, 7);
        assert_eq!(rig.resize(block, layout(40 << 10, 8), 65 << 10), None);
        check(&Blocks::from([(block, (layout(40 << 10, 8), 7))]), &rig.extents());
    }

    #[test]
    fn classes_fit_their_sizes_and_waste_a_third_at_most() {
        let mut before = (0, GRAIN);
        for size in 0..=SMALL {
            let (class, bytes) = class(size);
            assert!(bytes >= size && bytes % SMALL_ALIGN == 0 && class < CLASSES, "{size}");
            assert!(size <= GRAIN || (bytes - size) * 3 <= bytes + 3, "{size} takes {bytes}");
            assert!((class, bytes) == before || class == before.0 + 1, "{size}");
            before = (class, bytes);
        }
        assert_eq!(before, (CLASSES - 1, SMALL));
    }

    /// As a turn does that streams: an event, its pieces, and a text that grows.
    #[test]
    fn a_long_stream_needs_the_memory_of_what_it_holds() {
        let rig = Rig::new(&[48 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20, 32 << 20]);
        let (mut numbers, mut said, mut length) = (Numbers(7), None::<(usize, usize)>, 0);
        for _ in 0..1_000 {
            let event = layout(9_000 + numbers.below(3_000), 1);
            let mut held = vec![(rig.alloc(event).unwrap(), event)];
            for _ in 0..20 {
                let piece = layout(1 + numbers.below(200), 8);
                held.push((rig.alloc(piece).unwrap(), piece));
            }
            length += event.size();
            let capacity = length.next_power_of_two();
            said = Some(match said {
                Some((block, had)) if had < capacity => {
                    (rig.resize(block, layout(had, 1), capacity).unwrap(), capacity)
                }
                Some(same) => same,
                None => (rig.alloc(layout(capacity, 1)).unwrap(), capacity),
            });
            for (block, layout) in held {
                rig.free(block, layout);
            }
        }
        assert!(length > 10_000_000);
        // The text and its copy while it grows, in pieces of the source that are powers of two.
        assert!(rig.given() <= 64 << 20, "{} bytes", rig.given());
        let (block, had) = said.unwrap();
        rig.free(block, layout(had, 1));
        let free: usize = rig.extents().iter().map(|(_, size)| size).sum();
        assert!(free + (16 << 10) > rig.given(), "{free} of {} bytes are free", rig.given());
    }
}
