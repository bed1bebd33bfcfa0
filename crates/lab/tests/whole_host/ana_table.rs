//! Which paths carry I/O, by policy and ANA states: the table. Tests in virtual time and over real
//! TCP run from it.

/// Two equal paths, `a` and `b`, joined in this order; enough reads at once that no path is idle.
/// The head of a column has the ANA state of `a`, then of `b`:
/// `O` optimized, `N` non-optimized, `I` inaccessible.
/// The cell names the paths that are used; `-` means that I/O waits, without an error.
///
/// Two workers submit: `io-affinity` without masks gives `a` to the first and `b` to the second.
const TABLE: &str = "
    policy                   kernel_exact   OO  ON  OI  NO  NN  NI  IO  IN  II
    numa                     0 1            a   a   a   b   a   a   b   b   -
    round-robin              0 1            ab  a   a   b   ab  a   b   b   -
    queue-depth              0 1            ab  a   a   b   ab  a   b   b   -
    service-time             0 1            ab  a   a   b   ab  a   b   b   -
    latency                  0              ab  a   a   b   ab  a   b   b   -
    latency                  1              ab  ab  a   ab  ab  a   b   b   -
    queue-length             0 1            ab  a   a   b   ab  a   b   b   -
    historical-service-time  0 1            ab  a   a   b   ab  a   b   b   -
    io-affinity              0 1            ab  a   a   b   ab  a   b   b   -
    finish-time              0 1            ab  a   a   b   ab  a   b   b   -
";

/// A line of the table, for one value of `kernel_exact`.
pub(crate) struct Case {
    pub(crate) policy: &'static str,
    pub(crate) kernel_exact: bool,
    pub(crate) cells: Vec<Cell>,
}

/// What one policy does with one pair of ANA states.
pub(crate) struct Cell {
    /// Of path `a` and path `b`, in the kernel's words.
    pub(crate) ana: [&'static str; 2],
    /// Which of the two is used.
    pub(crate) used: [bool; 2],
}

fn ana(letter: char) -> &'static str {
    match letter {
        'O' => "optimized",
        'N' => "non-optimized",
        'I' => "inaccessible",
        _ => panic!("{letter} is no ANA state of the table"),
    }
}

/// The table, one case for each of these policies in either mode. They must be all that it has.
pub(crate) fn cases(policies: &[&str]) -> Vec<Case> {
    let mut lines =
        TABLE.lines().map(str::split_whitespace).filter(|line| line.clone().count() > 0);
    let pairs: Vec<&str> = lines.next().expect("a head").skip(2).collect();
    let mut cases = Vec::new();
    for mut line in lines {
        let policy = line.next().expect("a policy");
        let words: Vec<&str> = line.collect();
        let (modes, used) = words.split_at(words.len() - pairs.len());
        for mode in modes {
            let cells = pairs.iter().zip(used).map(|(pair, used)| Cell {
                ana: [0, 1].map(|at| ana(pair.chars().nth(at).expect("two states"))),
                used: ['a', 'b'].map(|path| used.contains(path)),
            });
            cases.push(Case { policy, kernel_exact: *mode == "1", cells: cells.collect() });
        }
    }
    for policy in policies {
        let modes = cases.iter().filter(|case| case.policy == *policy).count();
        assert_eq!(modes, 2, "the table has {policy} once in either mode");
    }
    assert_eq!(cases.len(), 2 * policies.len(), "the table has no policy that does not exist");
    cases
}
