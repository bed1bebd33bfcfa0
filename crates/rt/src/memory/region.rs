//! Memory maps, and the table that makes them known to all workers of a group.
//!
//! A pool region is cut into chunks of 1 MiB; a chunk serves slots of one size, a power of two from
//! 4 KiB up, so the slot that a handle lies in follows from its offset. Each slot has a generation
//! (a handle that outlived its buffer is noticed), a count of operations of the kernel that name it
//! (freeing it before they are reaped is noticed), and a link for buffers that come home from
//! another worker.

use anabranch_proto::machine::BufRef;
use rustix::mm::Advice;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

/// Bytes of a page, the smallest slot.
pub(crate) const PAGE: u64 = 4096;
/// Bytes of a chunk, the largest slot.
pub(crate) const CHUNK: u64 = 1 << 20;
/// The class of a chunk that serves no slots now.
pub(crate) const NO_CLASS: u8 = u8::MAX;
/// Ends the list of returned slots.
const NO_PAGE: u32 = u32::MAX;

/// A private anonymous map, touched lazily.
#[derive(Debug)]
pub(crate) struct Map {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the map is plain memory owned by this value; who may touch which bytes when is settled by
// the users of the map (the worker that owns a buffer, or the kernel while an operation names it).
unsafe impl Send for Map {}
// SAFETY: as above; a shared `Map` gives out addresses only.
unsafe impl Sync for Map {}

impl Map {
    /// Maps `len` bytes of zeroes (page aligned).
    pub(crate) fn new(len: usize) -> io::Result<Map> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh anonymous map at an address of the kernel's choice overlaps nothing.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), len, prot, flags) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Map { base, len })
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address `offset` bytes in, for a stretch of `len` bytes that must lie in the map.
    pub(crate) fn at(&self, offset: u64, len: u32) -> *mut u8 {
        let end = offset.checked_add(u64::from(len));
        assert!(
            end.is_some_and(|end| end <= self.len as u64),
            "stretch at {offset} of {len} bytes lies outside its region of {} bytes",
            self.len
        );
        // SAFETY: the assertion above keeps the result inside the map.
        unsafe { self.base.as_ptr().add(offset as usize) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the map was made by `new` with this length, and nobody can name it any more.
        let gone = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(gone.is_ok(), "munmap of an own map");
    }
}

/// Book-keeping of a slot, kept at the slot's first page. All zero bytes are a valid value.
#[derive(Debug)]
struct PageState {
    generation: AtomicU16,
    lent: AtomicU16,
    next_returned: AtomicU32,
}

/// One worker's pool memory, as all workers of the group see it.
#[derive(Debug)]
pub(crate) struct Region {
    map: Map,
    classes: Box<[AtomicU8]>,
    pages: Box<[PageState]>,
    returned: AtomicU32,
}

impl Region {
    fn new(bytes: usize) -> io::Result<Region> {
        let chunks = bytes.div_ceil(CHUNK as usize);
        let map = Map::new(chunks * CHUNK as usize)?;
        let pages = Box::<[PageState]>::new_zeroed_slice(map.len() / PAGE as usize);
        // SAFETY: `PageState` consists of integers (atomics), for which zero bytes are valid.
        let pages = unsafe { pages.assume_init() };
        let classes = (0..chunks).map(|_| AtomicU8::new(NO_CLASS)).collect();
        Ok(Region { map, classes, pages, returned: AtomicU32::new(NO_PAGE) })
    }

    pub(crate) fn chunks(&self) -> usize {
        self.classes.len()
    }

    /// Says which slots a chunk serves from now on (`log2` of pages, or [`NO_CLASS`]). Owner only.
    pub(crate) fn set_class(&self, chunk: usize, class: u8) {
        self.classes[chunk].store(class, Ordering::Release);
    }

    /// Gives the pages of a chunk back to the system; they read as zeroes when they are next
    /// touched. Owner only, of a chunk that serves no class.
    pub(crate) fn give_up(&self, chunk: usize) {
        let class = self.classes[chunk].load(Ordering::Acquire);
        assert!(class == NO_CLASS, "a chunk was given up that has buffers");
        let at = self.map.at(chunk as u64 * CHUNK, CHUNK as u32);
        // SAFETY: the chunk lies in the map. It serves no class, so no buffer lies in it, nobody
        // holds a reference to its bytes, and no operation of the kernel names them.
        let given =
            unsafe { rustix::mm::madvise(at.cast(), CHUNK as usize, Advice::LinuxDontNeed) };
        // Then they stay; nothing else changes.
        debug_assert!(given.is_ok(), "madvise of an own map");
    }

    /// The page number at which the slot begins that holds byte `offset`, and its class.
    pub(crate) fn slot(&self, offset: u64) -> (usize, u8) {
        let chunk = (offset / CHUNK) as usize;
        let class = self.classes[chunk].load(Ordering::Acquire);
        assert!(class != NO_CLASS, "buffer at {offset} was freed");
        let page = offset / PAGE;
        ((page >> class << class) as usize, class)
    }

    pub(crate) fn generation(&self, page: usize) -> u16 {
        self.pages[page].generation.load(Ordering::Acquire)
    }

    /// The slot's buffer is gone: handles with the old generation are void.
    pub(crate) fn retire(&self, page: usize) {
        let state = &self.pages[page];
        let lent = state.lent.load(Ordering::Acquire);
        assert!(lent == 0, "buffer freed while {lent} operations still name it");
        let next = state.generation.load(Ordering::Relaxed).wrapping_add(1);
        state.generation.store(next, Ordering::Release);
    }

    /// Sends a retired slot home to its owner.
    pub(crate) fn give_back(&self, page: usize) {
        let mut head = self.returned.load(Ordering::Relaxed);
        loop {
            self.pages[page].next_returned.store(head, Ordering::Relaxed);
            let link = u32::try_from(page).expect("fewer than 2^32 pages");
            match self.returned.compare_exchange_weak(
                head,
                link,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes all slots that came home; owner only.
    pub(crate) fn take_returned(&self, mut each: impl FnMut(usize)) {
        if self.returned.load(Ordering::Relaxed) == NO_PAGE {
            return;
        }
        let mut page = self.returned.swap(NO_PAGE, Ordering::Acquire);
        while page != NO_PAGE {
            let next = self.pages[page as usize].next_returned.load(Ordering::Relaxed);
            each(page as usize);
            page = next;
        }
    }

    /// Checks a handle and returns its slot's first page.
    #[inline]
    fn check(&self, buf: BufRef) -> usize {
        match self.find(buf) {
            Some(page) => page,
            None => self.refuse(buf),
        }
    }

    /// The first page of the slot that a handle lies in; `None` when there is something wrong with
    /// it.
    #[inline]
    fn find(&self, buf: BufRef) -> Option<usize> {
        let end = buf.offset().checked_add(u64::from(buf.len()))?;
        let chunk = self.classes.get((buf.offset() / CHUNK) as usize)?;
        let class = chunk.load(Ordering::Acquire);
        if class == NO_CLASS {
            return None;
        }
        let page = ((buf.offset() / PAGE) >> class) << class;
        let slot_end = page * PAGE + (PAGE << class);
        let state = self.pages.get(page as usize)?;
        let generation = state.generation.load(Ordering::Acquire);
        (end <= slot_end && generation == buf.generation()).then_some(page as usize)
    }

    /// Says what is wrong with a handle.
    #[cold]
    fn refuse(&self, buf: BufRef) -> ! {
        let end = buf.offset().checked_add(u64::from(buf.len()));
        let inside = end.is_some_and(|end| end <= self.map.len() as u64);
        assert!(inside, "{buf:?} lies outside its region");
        let (page, class) = self.slot(buf.offset());
        let slot_end = ((page as u64) << 12) + (PAGE << class);
        assert!(end.is_some_and(|end| end <= slot_end), "{buf:?} leaves its buffer");
        let generation = self.generation(page);
        panic!("{buf:?} outlived its buffer ({generation})");
    }

    /// The address of a buffer, checked, and the first page of its slot.
    #[inline]
    fn resolve(&self, buf: BufRef) -> (*mut u8, usize) {
        let page = self.check(buf);
        // SAFETY: a checked handle lies in a slot of one of the map's chunks.
        (unsafe { self.map.base().add(buf.offset() as usize) }, page)
    }
}

/// The regions of a group, one per worker.
#[derive(Debug)]
pub(crate) struct Regions(Box<[Region]>);

impl Regions {
    /// One region of `bytes` for each of `workers`.
    pub(crate) fn new(workers: usize, bytes: usize) -> io::Result<Regions> {
        let regions = (0..workers).map(|_| Region::new(bytes)).collect::<io::Result<Vec<_>>>()?;
        Ok(Regions(regions.into_boxed_slice()))
    }

    /// The region of that number.
    pub(crate) fn get(&self, region: u16) -> &Region {
        let count = self.0.len();
        self.0.get(usize::from(region)).unwrap_or_else(|| panic!("region {region} of {count}"))
    }

    /// The address of a buffer, checked. An engine that names memory which is not its own has a
    /// defect; going on would corrupt somebody's data.
    pub(crate) fn resolve(&self, buf: BufRef) -> *mut u8 {
        if buf.is_empty() {
            return NonNull::dangling().as_ptr();
        }
        self.get(buf.region()).resolve(buf).0
    }

    /// As [`Regions::resolve`], for an operation of the kernel; [`Regions::reaped`] ends it.
    pub(crate) fn lend(&self, buf: BufRef) -> *mut u8 {
        if buf.is_empty() {
            return NonNull::dangling().as_ptr();
        }
        let region = self.get(buf.region());
        let (address, page) = region.resolve(buf);
        region.pages[page].lent.fetch_add(1, Ordering::Relaxed);
        address
    }

    /// The operation that named `buf` is over.
    pub(crate) fn reaped(&self, buf: BufRef) {
        if buf.is_empty() {
            return;
        }
        let region = self.get(buf.region());
        let page = region.check(buf);
        region.pages[page].lent.fetch_sub(1, Ordering::Release);
    }
}
