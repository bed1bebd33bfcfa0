//! What kind of command is to be placed.

/// The class of a command, as far as policies and statistics tell commands apart.
///
/// The three groups of the latency series: everything that does not carry data of its own kind
/// (flush, write zeroes, deallocate, compare, control operations on a head) is `Other`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OpClass {
    /// Data from the controller to the host.
    Read,
    /// Data from the host to the controller.
    Write,
    /// Everything else.
    #[default]
    Other,
}

impl OpClass {
    /// Every class, in the order in which statistics list them.
    pub const ALL: [OpClass; 3] = [OpClass::Read, OpClass::Write, OpClass::Other];
}
