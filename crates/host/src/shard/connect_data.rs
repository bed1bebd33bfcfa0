//! Memory for the data of Fabrics Connect.
//!
//! Requests that wait for a path keep their payload, and may hold the whole pool that way. A path
//! comes back only with a Connect, whose data must therefore not depend on the pool: the shard
//! takes a reserve once, at its start.

use anabranch_proto::machine::{BufRef, Buffers};

/// Connect data of one queue pair (Fabrics, Connect command), bytes.
const BYTES: u32 = 1024;

/// How many queue pairs find room in the reserve at once: with an empty pool, the others wait. Not
/// for long: the data is lent until it has left, which takes no answer of a controller.
const SEATS: u32 = 16;

/// Room for the Connect data of one queue pair.
pub(super) struct Loan {
    pub(super) buf: BufRef,
    /// `None`: from the pool.
    seat: Option<u32>,
}

/// Lends room for Connect data: from the reserve first, then from the pool.
#[derive(Default)]
pub(super) struct ConnectData {
    reserve: Option<BufRef>,
    /// One bit per seat of the reserve.
    lent: u16,
    /// Some queue pair found no room.
    pub(super) someone_waits: bool,
}

impl ConnectData {
    /// Takes the reserve, or gives it back: it is kept while queue pairs may open.
    pub(super) fn keep(&mut self, wanted: bool, bufs: &mut dyn Buffers) {
        if wanted && self.reserve.is_none() {
            self.reserve = bufs.alloc(SEATS * BYTES);
        } else if !wanted
            && self.lent == 0
            && let Some(reserve) = self.reserve.take()
        {
            bufs.free(reserve);
        }
    }

    /// Lends room for `data`, or notes that someone waits for it.
    pub(super) fn lend(&mut self, data: &[u8; 1024], bufs: &mut dyn Buffers) -> Option<Loan> {
        let seat = self.lent.trailing_ones();
        let loan = match self.reserve {
            Some(reserve) if seat < SEATS => {
                self.lent |= 1 << seat;
                Some(Loan { buf: reserve.slice(seat * BYTES, BYTES), seat: Some(seat) })
            }
            _ => bufs.alloc(BYTES).map(|buf| Loan { buf, seat: None }),
        };
        self.someone_waits |= loan.is_none();
        let loan = loan?;
        bufs.bytes_mut(loan.buf).copy_from_slice(data);
        Some(loan)
    }

    /// Takes back what nobody outside can name any more.
    pub(super) fn take_back(&mut self, loan: &Loan, bufs: &mut dyn Buffers) {
        match loan.seat {
            Some(seat) => self.lent &= !(1 << seat),
            None => bufs.free(loan.buf),
        }
    }
}
