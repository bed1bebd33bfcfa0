//! Inputs that carry neither a verb nor mail fit every engine.

use anabranch_proto::machine::Input;

/// Stands for verbs and mail in inputs that carry neither.
pub(crate) enum Never {}

/// The same input, for an engine with verbs and mail of its own.
pub(crate) fn cast<'a, V, M>(input: Input<'a, Never, Never>) -> Input<'a, V, M> {
    match input {
        Input::Start => Input::Start,
        Input::Timeout => Input::Timeout,
        Input::Connected { conn, local, node } => Input::Connected { conn, local, node },
        Input::Accepted { listener, conn, peer } => Input::Accepted { listener, conn, peer },
        Input::Listening { listener, at } => Input::Listening { listener, at },
        Input::Unlistened { listener, error } => Input::Unlistened { listener, error },
        Input::Received { conn, bytes } => Input::Received { conn, bytes },
        Input::ReceivedInto { conn, len } => Input::ReceivedInto { conn, len },
        Input::Transmitted { conn } => Input::Transmitted { conn },
        Input::Looked { conn } => Input::Looked { conn },
        Input::Closed { conn, cause } => Input::Closed { conn, cause },
        Input::DiskDone { id, result } => Input::DiskDone { id, result },
        Input::Mail { mail, .. } => match mail {},
        Input::Verb { verb, .. } => match verb {},
    }
}
