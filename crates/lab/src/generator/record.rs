//! What a worker writes down while the run goes on.

use super::figures::{HostFigures, Window};
use super::plan::Plan;
use super::slots::Slot;
use crate::figures::SERIES_NS;

/// Times are nanoseconds since the beginning.
#[derive(Debug)]
pub(super) struct Record {
    ramp_ns: u64,
    end_ns: u64,
    figures: Box<HostFigures>,
    /// The window of the series that the last completion fell into, and its end.
    window: usize,
    window_end_ns: u64,
}

impl Record {
    pub(super) fn new(plan: &Plan) -> Record {
        let windows = (plan.end_ns() / SERIES_NS) as usize;
        let mut figures = Box::new(HostFigures::default());
        figures.jobs.resize_with(plan.jobs.len(), Default::default);
        figures.windows.resize(windows, Window::default());
        Record {
            ramp_ns: plan.ramp_ns,
            end_ns: plan.end_ns(),
            figures,
            window: 0,
            window_end_ns: SERIES_NS,
        }
    }

    fn measures(&self, at_ns: u64) -> bool {
        (self.ramp_ns..self.end_ns).contains(&at_ns)
    }

    /// A request begins, when it was meant to.
    #[inline]
    pub(super) fn begun(&mut self, slot: &Slot) {
        let books = &mut self.figures.books;
        books.requests_started += 1;
        books.bytes_started += u64::from(slot.bytes);
        // The integral up to the end, as if it never ended. Of long runs only the difference fits.
        books.in_flight_ns = books.in_flight_ns.wrapping_add(self.end_ns - slot.start_ns);
    }

    /// The host has taken a request.
    #[inline]
    pub(super) fn taken(&mut self, slot: &Slot, at_ns: u64) {
        if self.measures(at_ns) {
            self.figures.submission.record(at_ns.saturating_sub(slot.start_ns));
        }
    }

    /// A request has ended before the end of the window.
    #[inline]
    pub(super) fn ended(&mut self, slot: &Slot, job: usize, at_ns: u64, well: bool) {
        let latency_ns = at_ns - slot.start_ns;
        let measures = self.measures(at_ns);
        let figures = &mut *self.figures;
        let books = &mut figures.books;
        books.requests_ended += 1;
        books.bytes_ended += u64::from(slot.bytes);
        books.latency_ns += latency_ns;
        books.in_flight_ns = books.in_flight_ns.wrapping_sub(self.end_ns - at_ns);
        if !well {
            return;
        }
        while at_ns >= self.window_end_ns {
            self.window += 1;
            self.window_end_ns += SERIES_NS;
        }
        if let Some(window) = figures.windows.get_mut(self.window) {
            window.requests += 1;
            window.latency_ns += latency_ns;
        }
        if measures {
            let class = &mut figures.jobs[job][slot.op as usize];
            class.latency.record(latency_ns);
            class.bytes += u64::from(slot.bytes);
            figures.bytes += u64::from(slot.bytes);
        }
    }

    /// A request was open when the window ended.
    pub(super) fn open(&mut self, slot: &Slot) {
        let books = &mut self.figures.books;
        books.requests_open += 1;
        books.bytes_open += u64::from(slot.bytes);
        books.open_ns += self.end_ns - slot.start_ns;
    }

    pub(super) fn refused(&mut self) {
        self.figures.books.requests_refused += 1;
    }

    pub(super) fn waited(&mut self, requests: usize) {
        self.figures.waited += requests as u64;
    }

    pub(super) fn error(&mut self, words: impl FnOnce() -> String) {
        self.figures.errors += 1;
        self.figures.first_error.get_or_insert_with(words);
    }

    pub(super) fn finish(self) -> Box<HostFigures> {
        self.figures
    }
}
