//! Workers: one thread, one io_uring, one engine.
