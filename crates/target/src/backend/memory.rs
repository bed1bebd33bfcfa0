//! Blocks in memory: two levels of tables, and only chunks that were written exist.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;

/// What is allocated, and given back, at once.
const CHUNK: usize = 64 << 10;
/// Chunks per table of the second level.
const FAN_OUT: usize = 1024;

type Chunk = Box<[u8; CHUNK]>;
type Table = Box<[Option<Chunk>]>;

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

    fn chunk(&self, number: u64) -> Option<&Chunk> {
        let (table, entry) = split(number);
        self.tables.get(&table)?[entry].as_ref()
    }

    fn make_chunk(&mut self, number: u64) -> Result<&mut Chunk, OutOfMemory> {
        let (table, entry) = split(number);
        let table = match self.tables.entry(table) {
            Entry::Occupied(table) => table.into_mut(),
            Entry::Vacant(empty) => empty.insert(boxed(FAN_OUT, || None)?),
        };
        match &mut table[entry] {
            Some(chunk) => Ok(chunk),
            empty => {
                let chunk = boxed(CHUNK, || 0_u8)?.try_into().map_err(|_| OutOfMemory)?;
                self.chunks += 1;
                Ok(empty.insert(chunk))
            }
        }
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
            let chunk = self.make_chunk(piece.chunk)?;
            chunk[piece.at..piece.at + piece.len].copy_from_slice(from);
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

    /// Turns a range into zeroes; what is zeroed whole is given back. The effort follows what
    /// exists, not the length: a host may name a whole namespace of terabytes 256 times in one
    /// command.
    pub(crate) fn zero(&mut self, offset: u64, len: u64) {
        const TABLE: u64 = (CHUNK * FAN_OUT) as u64;
        assert!(offset + len <= self.bytes, "range lies in the namespace");
        if len == 0 {
            return;
        }
        let end = offset + len;
        let (mut first, last) = (offset / TABLE, (end - 1) / TABLE);
        while let Some((&number, table)) = self.tables.range_mut(first..=last).next() {
            let (begin, all) = (number * TABLE, self.bytes.min((number + 1) * TABLE));
            let (from, to) = (offset.max(begin), end.min(all));
            if (from, to) == (begin, all) {
                self.chunks -= table.iter().flatten().count() as u64;
                self.tables.remove(&number);
            } else {
                self.chunks -= zero_in_table(table, from, to - from);
            }
            if number == last {
                return;
            }
            first = number + 1;
        }
    }

    /// Inverts a range: a fault for tests of verification.
    pub(crate) fn invert(&mut self, offset: u64, len: u64) -> Result<(), OutOfMemory> {
        assert!(offset + len <= self.bytes, "range lies in the namespace");
        for piece in pieces(offset, len) {
            let chunk = self.make_chunk(piece.chunk)?;
            for byte in &mut chunk[piece.at..piece.at + piece.len] {
                *byte = !*byte;
            }
        }
        Ok(())
    }
}

/// Turns a range that lies in one table into zeroes. How many chunks were given back.
fn zero_in_table(table: &mut Table, offset: u64, len: u64) -> u64 {
    let mut given_back = 0;
    for piece in pieces(offset, len) {
        let (_, entry) = split(piece.chunk);
        if piece.len == CHUNK {
            given_back += u64::from(table[entry].take().is_some());
        } else if let Some(chunk) = &mut table[entry] {
            chunk[piece.at..piece.at + piece.len].fill(0);
        }
    }
    given_back
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
        memory.zero(512, 3 * CHUNK as u64);
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
