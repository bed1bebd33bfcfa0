//! Blocks in memory: two levels of tables, and only chunks that were written exist.

use alloc::boxed::Box;
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
    tables: Vec<Option<Table>>,
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

fn tables_for(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil((CHUNK * FAN_OUT) as u64)).unwrap_or(usize::MAX)
}

impl Memory {
    pub(crate) fn new(bytes: u64) -> Memory {
        let mut tables = Vec::new();
        tables.resize_with(tables_for(bytes), || None);
        Memory { bytes, tables, chunks: 0 }
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        self.chunks * CHUNK as u64
    }

    pub(crate) fn resize(&mut self, bytes: u64) {
        if bytes < self.bytes {
            self.zero(bytes, self.bytes - bytes);
        }
        self.tables.resize_with(tables_for(bytes), || None);
        self.bytes = bytes;
    }

    fn chunk(&self, number: u64) -> Option<&Chunk> {
        let (table, entry) = split(number);
        self.tables[table].as_ref()?[entry].as_ref()
    }

    fn make_chunk(&mut self, number: u64) -> Result<&mut Chunk, OutOfMemory> {
        let (table, entry) = split(number);
        let table = match &mut self.tables[table] {
            Some(table) => table,
            empty => empty.insert(boxed(FAN_OUT, || None)?),
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

    /// Turns a range into zeroes; whole chunks are given back. The effort follows what exists, not
    /// the length: a host may name a whole empty namespace 256 times in one command.
    pub(crate) fn zero(&mut self, offset: u64, len: u64) {
        const TABLE: u64 = (CHUNK * FAN_OUT) as u64;
        assert!(offset + len <= self.bytes, "range lies in the namespace");
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let stop = end.min((at / TABLE + 1) * TABLE);
            let (table, _) = split(at / CHUNK as u64);
            if self.tables[table].is_some() {
                self.zero_in_table(at, stop - at);
            }
            at = stop;
        }
    }

    fn zero_in_table(&mut self, offset: u64, len: u64) {
        for piece in pieces(offset, len) {
            let (table, entry) = split(piece.chunk);
            let Some(table) = &mut self.tables[table] else { return };
            if piece.len == CHUNK {
                if table[entry].take().is_some() {
                    self.chunks -= 1;
                }
            } else if let Some(chunk) = &mut table[entry] {
                chunk[piece.at..piece.at + piece.len].fill(0);
            }
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

fn split(number: u64) -> (usize, usize) {
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    (number / FAN_OUT, number % FAN_OUT)
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
