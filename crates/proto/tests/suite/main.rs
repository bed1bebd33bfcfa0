//! Tests of the wire, in one program: each further one would have to be built and linked.

mod bad_controller_answers;
mod bad_host_requests;
mod bad_pdu_headers;
mod command_taken_back;
mod data_pdus;
mod early_answers;
mod fuzz_host_side;
mod fuzz_target_side;
mod golden_pdus;
mod heads_in_one_piece;
mod mutation;
mod nvme_structures;
mod nvme_values;
mod queue_pair;
mod read_buffer_taken_back;
mod status_apart;
mod stream_splits;
