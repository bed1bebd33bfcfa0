//! Hand a head to its users.
