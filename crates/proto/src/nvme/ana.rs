//! Asymmetric Namespace Access states (Base 8.1, log page 0Ch).

/// What a path is worth: the state of an ANA group as one controller reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum AnaState {
    /// Best access.
    Optimized = 1,
    /// Access works, other paths may be better.
    NonOptimized = 2,
    /// No access through this controller now.
    Inaccessible = 3,
    /// No access through this controller, for good.
    PersistentLoss = 4,
    /// Between two states; ends within ANATT.
    Change = 15,
}

impl AnaState {
    /// Every state, in the order of the codes.
    pub const ALL: [AnaState; 5] = [
        AnaState::Optimized,
        AnaState::NonOptimized,
        AnaState::Inaccessible,
        AnaState::PersistentLoss,
        AnaState::Change,
    ];

    /// The state that a code of the ANA log names; `None` for a code that the specification does
    /// not define.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<AnaState> {
        match code {
            1 => Some(AnaState::Optimized),
            2 => Some(AnaState::NonOptimized),
            3 => Some(AnaState::Inaccessible),
            4 => Some(AnaState::PersistentLoss),
            15 => Some(AnaState::Change),
            _ => None,
        }
    }

    /// As [`AnaState::from_code`]; a code that we do not know gives no access, so a host treats it
    /// as inaccessible.
    #[must_use]
    pub const fn from_code_or_inaccessible(code: u8) -> AnaState {
        match AnaState::from_code(code) {
            Some(state) => state,
            None => AnaState::Inaccessible,
        }
    }

    /// The code of the ANA log.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Whether a path in this state may carry I/O.
    #[must_use]
    pub const fn is_accessible(self) -> bool {
        matches!(self, AnaState::Optimized | AnaState::NonOptimized)
    }

    /// The kernel's word for the state.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            AnaState::Optimized => "optimized",
            AnaState::NonOptimized => "non-optimized",
            AnaState::Inaccessible => "inaccessible",
            AnaState::PersistentLoss => "persistent-loss",
            AnaState::Change => "change",
        }
    }
}

impl core::fmt::Display for AnaState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.as_str())
    }
}

/// The text names no ANA state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownAnaState;

impl core::fmt::Display for UnknownAnaState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("unknown ANA state; one of")?;
        for (index, state) in AnaState::ALL.iter().enumerate() {
            write!(f, "{} {state}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownAnaState {}

impl core::str::FromStr for AnaState {
    type Err = UnknownAnaState;

    fn from_str(text: &str) -> Result<AnaState, UnknownAnaState> {
        AnaState::ALL.into_iter().find(|state| state.as_str() == text).ok_or(UnknownAnaState)
    }
}
