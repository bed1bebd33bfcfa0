//! The light simulation against closed forms, its own books, and what is known of the policies.

mod books;
mod burners;
mod directions;
mod few_requests;
mod library;
mod limits;
mod longer_way;
mod overflow;
mod paths;
mod policies;
mod queues;
mod rates;
mod repeat;
mod rig;
mod shared_queues;
mod spill;
