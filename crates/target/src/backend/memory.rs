//! Blocks in memory: two levels of tables, and only chunks that were written exist.
//!
//! Each table knows which of its chunks exist, and each chunk which of its blocks were written, so
//! that what is empty is passed over and what is zero already is not made zero again.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;

/// What is allocated, and given back, at once.
const CHUNK: usize = 64 << 10;
/// Chunks per table of the second level.
const FAN_OUT: usize = 256;
/// Bytes of a table, whether they exist or not.
const TABLE: u64 = (CHUNK * FAN_OUT) as u64;
/// What a chunk knows of: as many as its mask has bits, and no namespace has shorter ones.
const BLOCK: usize = CHUNK / u128::BITS as usize;
/// Bits of a table's words.
const WORD: usize = u64::BITS as usize;

/// No memory for a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfMemory;

/// Sparse memory of a fixed size. What was never written reads as zero.
///
/// Ranges are checked by the caller; one that lies outside is a mistake of this crate and panics.
#[derive(Debug)]
pub(crate) struct Memory {
    bytes: u64,
    /// By number; none that nothing was written to.
    tables: BTreeMap<u64, Table>,
    chunks: u64,
}

/// A chunk that exists.
#[derive(Debug)]
struct Chunk {
    bytes: Box<[u8; CHUNK]>,
    /// Bit by bit, the blocks that may hold something else than zeroes.
    written: u128,
}

/// A table that exists: some of its chunks do.
#[derive(Debug)]
struct Table {
    chunks: Box<[Option<Chunk>]>,
    /// Bit by bit, which do.
    present: [u64; FAN_OUT / WORD],
}

/// A piece of a range that lies in one chunk: chunk number, place in it, place in the range.
struct Piece {
    chunk: u64,
    at: usize,
    from: usize,
    len: usize,
}

fn pieces(offset: u64, len: u64) -> impl Iterator<Item = Piece> {
    let mut from = 0_u64;
    core::iter::from_fn(move || {
        if from >= len {
            return None;
        }
        let place = offset + from;
        let at = (place % CHUNK as u64) as usize;
        let here = (CHUNK - at).min(usize::try_from(len - from).unwrap_or(usize::MAX));
        let piece = Piece {
            chunk: place / CHUNK as u64,
            at,
            from: usize::try_from(from).unwrap_or(usize::MAX),
            len: here,
        };
        from += here as u64;
        Some(piece)
    })
}

impl Memory {
    pub(crate) fn new(bytes: u64) -> Memory {
        Memory { bytes, tables: BTreeMap::new(), chunks: 0 }
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        self.chunks * CHUNK as u64
    }

    pub(crate) fn resize(&mut self, bytes: u64) {
        if bytes < self.bytes {
            self.zero(bytes, self.bytes - bytes);
        }
        self.bytes = bytes;
    }

    fn chunk(&self, number: u64) -> Option<&[u8; CHUNK]> {
        let (table, entry) = split(number);
        Some(&*self.tables.get(&table)?.chunks[entry].as_ref()?.bytes)
    }

    /// The chunk of a piece that is about to be written.
    fn make_chunk(&mut self, piece: &Piece) -> Result<&mut [u8], OutOfMemory> {
        let (table, entry) = split(piece.chunk);
        let mut room = None;
        let table = match self.tables.entry(table) {
            Entry::Occupied(table) => table.into_mut(),
            Entry::Vacant(empty) => {
                let chunks = boxed(FAN_OUT, || None)?;
                // No table comes to be without a chunk.
                room = Some(new_chunk()?);
                empty.insert(Table { chunks, present: [0; FAN_OUT / WORD] })
            }
        };
        let chunk = match &mut table.chunks[entry] {
            Some(chunk) => chunk,
            empty => {
                let chunk = room.map_or_else(new_chunk, Ok)?;
                table.present[entry / WORD] |= 1 << (entry % WORD);
                self.chunks += 1;
                empty.insert(chunk)
            }
        };
        chunk.written |= touched(piece.at, piece.len);
        Ok(&mut chunk.bytes[piece.at..piece.at + piece.len])
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) {
        assert!(offset + into.len() as u64 <= self.bytes, "range lies in the namespace");
        for piece in pieces(offset, into.len() as u64) {
            let into = &mut into[piece.from..piece.from + piece.len];
            match self.chunk(piece.chunk) {
                Some(chunk) => into.copy_from_slice(&chunk[piece.at..piece.at + piece.len]),
                None => into.fill(0),
            }
        }
    }

    /// Writes all or, when there is no memory, a front part.
    pub(crate) fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), OutOfMemory> {
        assert!(offset + from.len() as u64 <= self.bytes, "range lies in the namespace");
        for piece in pieces(offset, from.len() as u64) {
            let from = &from[piece.from..piece.from + piece.len];
            self.make_chunk(&piece)?.copy_from_slice(from);
        }
        Ok(())
    }

    pub(crate) fn equals(&self, offset: u64, other: &[u8]) -> bool {
        assert!(offset + other.len() as u64 <= self.bytes, "range lies in the namespace");
        pieces(offset, other.len() as u64).all(|piece| {
            let other = &other[piece.from..piece.from + piece.len];
            match self.chunk(piece.chunk) {
                Some(chunk) => chunk[piece.at..piece.at + piece.len] == *other,
                None => other.iter().all(|byte| *byte == 0),
            }
        })
    }

    /// Turns a range into zeroes; chunks with nothing else are given back. The effort follows what
    /// was written, not the length: a host may name a whole namespace of terabytes 256 times in
    /// one command. Tells how many chunks had to be looked at.
    pub(crate) fn zero(&mut self, offset: u64, len: u64) -> u64 {
        assert!(offset + len <= self.bytes, "range lies in the namespace");
        if len == 0 {
            return 0;
        }
        let (end, mut looked_at) = (offset + len, 0);
        let (mut first, last) = (offset / TABLE, (end - 1) / TABLE);
        while let Some((&number, table)) = self.tables.range_mut(first..=last).next() {
            let (begin, all) = (number * TABLE, self.bytes.min((number + 1) * TABLE));
            let (from, to) = (offset.max(begin), end.min(all));
            let before = table.count();
            if (from, to) == (begin, all) {
                looked_at += before;
                self.chunks -= before;
                self.tables.remove(&number);
            } else {
                looked_at += table.zero((from - begin) as usize, (to - begin) as usize);
                let left = table.count();
                self.chunks -= before - left;
                if left == 0 {
                    self.tables.remove(&number);
                }
            }
            if number == last {
                break;
            }
            first = number + 1;
        }
        looked_at
    }

    /// Inverts a range: a fault for tests of verification.
    pub(crate) fn invert(&mut self, offset: u64, len: u64) -> Result<(), OutOfMemory> {
        assert!(offset + len <= self.bytes, "range lies in the namespace");
        for piece in pieces(offset, len) {
            for byte in self.make_chunk(&piece)? {
                *byte = !*byte;
            }
        }
        Ok(())
    }
}

impl Table {
    /// Chunks that exist.
    fn count(&self) -> u64 {
        self.present.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// The first chunk that exists, from this one on.
    fn next(&self, from: usize) -> Option<usize> {
        let mut mask = u64::MAX << (from % WORD);
        for (at, word) in self.present.iter().enumerate().skip(from / WORD) {
            let found = word & mask;
            if found != 0 {
                return Some(at * WORD + found.trailing_zeros() as usize);
            }
            mask = u64::MAX;
        }
        None
    }

    /// Turns a range of the table into zeroes, and gives chunks back that hold nothing else. How
    /// many there were in it.
    fn zero(&mut self, begin: usize, end: usize) -> u64 {
        let (mut from, mut looked_at) = (begin / CHUNK, 0);
        while let Some(entry) = self.next(from).filter(|entry| entry * CHUNK < end) {
            looked_at += 1;
            from = entry + 1;
            let start = entry * CHUNK;
            let Some(chunk) = &mut self.chunks[entry] else { continue };
            let (at, to) = (begin.saturating_sub(start), (end - start).min(CHUNK));
            if (at, to) != (0, CHUNK) {
                chunk.zero(at, to);
                if chunk.written != 0 {
                    continue;
                }
            }
            self.chunks[entry] = None;
            self.present[entry / WORD] &= !(1 << (entry % WORD));
        }
        looked_at
    }
}

impl Chunk {
    /// Turns what was written between two places into zeroes.
    fn zero(&mut self, begin: usize, end: usize) {
        let mut left = self.written & touched(begin, end - begin);
        while left != 0 {
            let first = left.trailing_zeros() as usize;
            let count = (left >> first).trailing_ones() as usize;
            let (from, to) = ((first * BLOCK).max(begin), ((first + count) * BLOCK).min(end));
            self.bytes[from..to].fill(0);
            left &= !bits(first, count);
        }
        // A block that was not covered whole may hold something still.
        let (first, end) = (begin.div_ceil(BLOCK), end / BLOCK);
        self.written &= !bits(first, end.saturating_sub(first));
    }
}

fn new_chunk() -> Result<Chunk, OutOfMemory> {
    let bytes = boxed(CHUNK, || 0_u8)?.try_into().map_err(|_| OutOfMemory)?;
    Ok(Chunk { bytes, written: 0 })
}

/// The blocks of a chunk that a piece touches; it is not empty.
fn touched(at: usize, len: usize) -> u128 {
    let first = at / BLOCK;
    bits(first, (at + len - 1) / BLOCK + 1 - first)
}

/// So many bits from one on, within a mask.
fn bits(first: usize, count: usize) -> u128 {
    if count == 0 { 0 } else { (u128::MAX >> (u128::BITS as usize - count)) << first }
}

/// The table of a chunk, and its place there.
fn split(number: u64) -> (u64, usize) {
    (number / FAN_OUT as u64, (number % FAN_OUT as u64) as usize)
}

fn boxed<T>(len: usize, fill: impl FnMut() -> T) -> Result<Box<[T]>, OutOfMemory> {
    let mut items = Vec::new();
    items.try_reserve_exact(len).map_err(|_| OutOfMemory)?;
    items.resize_with(len, fill);
    Ok(items.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const BYTES: u64 = 200 << 20;

    #[test]
    fn only_what_is_written_takes_memory() {
        let mut memory = Memory::new(BYTES);
        let mut out = vec![1; 8192];
        memory.read(BYTES - 8192, &mut out);
        assert_eq!(out, vec![0; 8192]);
        assert_eq!(memory.resident_bytes(), 0);
        memory.write(BYTES - 512, &[7; 512]).unwrap();
        assert_eq!(memory.resident_bytes(), CHUNK as u64);
        memory.read(BYTES - 8192, &mut out);
        assert!(out[..7680].iter().all(|b| *b == 0) && out[7680..].iter().all(|b| *b == 7));
    }

    #[test]
    fn ranges_cross_chunks_and_tables() {
        let mut memory = Memory::new(BYTES);
        let border = (CHUNK * FAN_OUT) as u64;
        let data: Vec<u8> = (0..300_000_u32).map(|i| (i % 251) as u8).collect();
        memory.write(border - 100_000, &data).unwrap();
        let mut out = vec![0; data.len()];
        memory.read(border - 100_000, &mut out);
        assert_eq!(out, data);
        assert!(memory.equals(border - 100_000, &data));
        assert!(!memory.equals(border - 99_999, &data));
    }

    #[test]
    fn zeroing_gives_whole_chunks_back() {
        let mut memory = Memory::new(BYTES);
        memory.write(0, &vec![9; 4 * CHUNK]).unwrap();
        assert_eq!(memory.zero(512, 3 * CHUNK as u64), 4);
        assert_eq!(memory.resident_bytes(), 2 * CHUNK as u64);
        let mut out = vec![1; 4 * CHUNK];
        memory.read(0, &mut out);
        let zero = |range: core::ops::Range<usize>| out[range].iter().all(|b| *b == 0);
        assert!(zero(512..512 + 3 * CHUNK));
        assert!(
            out[..512].iter().all(|b| *b == 9) && out[512 + 3 * CHUNK..].iter().all(|b| *b == 9)
        );
    }

    #[test]
    fn shrinking_forgets_and_growing_reads_zero() {
        let mut memory = Memory::new(BYTES);
        memory.write(BYTES - 4096, &[5; 4096]).unwrap();
        memory.write(0, &[6; 4096]).unwrap();
        memory.resize(4096);
        assert_eq!(memory.resident_bytes(), CHUNK as u64);
        memory.resize(BYTES);
        let mut out = [1; 4096];
        memory.read(BYTES - 4096, &mut out);
        assert_eq!(out, [0; 4096]);
        memory.read(0, &mut out);
        assert_eq!(out, [6; 4096]);
    }

    /// What was written to once and zeroed whole costs the next who names it nothing.
    #[test]
    fn what_is_zeroed_whole_leaves_no_table() {
        const BYTES: u64 = 16 << 40;
        let mut memory = Memory::new(BYTES - 4096);
        for at in [0, 5 << 40, 6 << 40, BYTES - 8192] {
            memory.write(at, &[5; 4096]).unwrap();
        }
        assert_eq!((memory.tables.len(), memory.resident_bytes()), (4, 4 * CHUNK as u64));
        memory.zero(4096, (6 << 40) - 4096);
        assert_eq!((memory.tables.len(), memory.resident_bytes()), (3, 3 * CHUNK as u64));
        memory.zero(0, 0);
        let mut out = [0; 4096];
        memory.read(0, &mut out);
        assert_eq!(out, [5; 4096], "it lies before what was zeroed");
        memory.zero(0, BYTES - 4096);
        assert_eq!((memory.tables.len(), memory.resident_bytes()), (0, 0));
        memory.read(BYTES - 8192, &mut out);
        assert_eq!(out, [0; 4096]);
    }

    /// Only what is there is looked at, whichever part of a table is named.
    #[test]
    fn what_is_empty_costs_nothing() {
        let mut memory = Memory::new(BYTES);
        memory.write(0, &[5; 512]).unwrap();
        memory.write(2 * TABLE - 512, &[6; 512]).unwrap();
        assert_eq!(memory.zero(512, 2 * TABLE - 1024), 2, "the first and the last chunk");
        assert_eq!(memory.zero(CHUNK as u64, 2 * TABLE - 2 * CHUNK as u64), 0);
        assert_eq!((memory.tables.len(), memory.resident_bytes()), (2, 2 * CHUNK as u64));
        for chunk in [63, 64, 127, 128, 255] {
            memory.write((chunk * CHUNK) as u64, &[7; 512]).unwrap();
        }
        let from = 63 * CHUNK as u64;
        assert_eq!(memory.zero(from + 512, 64 * CHUNK as u64 - 512), 2);
        assert_eq!(memory.resident_bytes(), 6 * CHUNK as u64, "the second of these is gone");
        let mut out = [0; 512];
        for (at, byte) in [(0, 5), (from, 7), (from + CHUNK as u64, 0), (2 * TABLE - 512, 6)] {
            memory.read(at, &mut out);
            assert_eq!(out, [byte; 512], "at {at}");
        }
    }

    /// A chunk that was zeroed piece by piece is given back with its last piece, a table with its
    /// last chunk.
    #[test]
    fn what_is_zeroed_in_pieces_leaves_nothing() {
        let mut memory = Memory::new(BYTES);
        memory.write(TABLE - 4096, &[5; 8192]).unwrap();
        assert_eq!((memory.tables.len(), memory.resident_bytes()), (2, 2 * CHUNK as u64));
        memory.zero(TABLE - 2048, 2048);
        memory.zero(TABLE, 4096);
        assert_eq!((memory.tables.len(), memory.resident_bytes()), (1, CHUNK as u64));
        let mut out = [1; 8192];
        memory.read(TABLE - 4096, &mut out);
        assert!(out[..2048].iter().all(|b| *b == 5) && out[2048..].iter().all(|b| *b == 0));
        memory.zero(TABLE - 4096, 2048);
        assert_eq!((memory.tables.len(), memory.resident_bytes()), (0, 0));
        // So is one of which only chunks that are covered whole are left.
        memory.write(TABLE + CHUNK as u64, &[5; 4096]).unwrap();
        memory.zero(TABLE + 512, TABLE - 1024);
        assert_eq!((memory.tables.len(), memory.resident_bytes()), (0, 0));
    }

    /// What was zeroed is not made zero again: only its mask is looked at.
    #[test]
    fn what_is_zero_already_is_left_alone() {
        let mut memory = Memory::new(BYTES);
        memory.write(0, &[5; 4096]).unwrap();
        memory.zero(512, 3072);
        let chunk = memory.tables.get_mut(&0).and_then(|table| table.chunks[0].as_mut()).unwrap();
        assert_eq!(chunk.written, 0b1000_0001);
        // Were it filled again, this would go.
        chunk.bytes[1000] = 9;
        memory.zero(512, 3072);
        let mut out = [0; 4096];
        memory.read(0, &mut out);
        assert_eq!((out[511], out[1000], out[3584]), (5, 9, 5));
    }

    /// Random writes and zeroes, against plain bytes: the masks never say less than there is.
    #[test]
    fn random_ranges_are_what_plain_bytes_are() {
        const BYTES: usize = 4 * CHUNK + 5 * 512;
        // Where two tables meet.
        const BASE: u64 = TABLE - 2 * CHUNK as u64;
        let mut rng = crate::rng::Rng::new(7);
        let (mut memory, mut plain) = (Memory::new(BASE + BYTES as u64), vec![0; BYTES]);
        let mut emptied = 0;
        for round in 0..4000_u32 {
            let at = rng.below(BYTES as u64) as usize;
            let longest = if rng.below(4) == 0 { BYTES } else { 3000 };
            let len = rng.below((BYTES - at).min(longest) as u64 + 1) as usize;
            if rng.below(3) == 0 {
                let data = vec![(round % 255) as u8 + 1; len];
                memory.write(BASE + at as u64, &data).unwrap();
                plain[at..at + len].copy_from_slice(&data);
            } else {
                let before = memory.chunks;
                memory.zero(BASE + at as u64, len as u64);
                plain[at..at + len].fill(0);
                emptied += before - memory.chunks;
            }
            let found = memory.tables.values().map(|table| table.chunks.iter().flatten().count());
            assert_eq!(found.sum::<usize>() as u64, memory.chunks);
            assert!(memory.equals(BASE, &plain), "in round {round}");
        }
        assert!(memory.chunks > 0 && emptied > 0, "it was about something");
    }

    #[test]
    fn inverting_changes_every_byte() {
        let mut memory = Memory::new(BYTES);
        memory.write(4096, &[0xf0; 4096]).unwrap();
        memory.invert(4096, 512).unwrap();
        let mut out = [0; 1024];
        memory.read(4096, &mut out);
        assert!(out[..512].iter().all(|b| *b == 0x0f) && out[512..].iter().all(|b| *b == 0xf0));
    }
}
