//! `finish-time` under writes that come a few at once, and then none for a while.

use crate::support::paths;
use anabranch_policy::{OpClass, Parameters, Policy, Selector, finish, sample, start};

const BYTES: u32 = 65_536;
const MS: u64 = 1_000_000;
/// What a write takes on the near path, where one waits for the other, and how far the other is.
const EACH_NS: u64 = MS;
const FAR_NS: u64 = 3 * MS;

#[test]
fn a_burst_stays_where_it_is_done_first_when_the_path_rests_between_bursts() {
    let parameters = Parameters::of(Policy::FinishTime);
    let table = paths("oo");
    let mut selector = Selector::new();
    let write = |index: usize, now_ns| {
        start(&parameters, table[index].load(), OpClass::Write, BYTES, now_ns)
    };
    let end = |index: usize, charge, now_ns| {
        finish(charge, table[index].load());
        sample(&parameters, charge, table[index].load(), 2, now_ns);
    };
    let mut far = 0;
    for burst in 0..400 {
        // The near path works for 2 of 4 ms.
        let now_ns = 1000 * MS + burst * 4 * MS;
        let mut near_ns = now_ns;
        let mut flying = Vec::new();
        for _ in 0..2 {
            let choice = selector.select(&parameters, &table, OpClass::Write, BYTES, now_ns);
            let index = choice.expect("both are usable").index;
            let end_ns = match index {
                0 => {
                    near_ns += EACH_NS;
                    near_ns
                }
                _ => now_ns + FAR_NS,
            };
            far += u32::from(index == 1 && burst >= 100);
            flying.push((end_ns, index, write(index, now_ns)));
        }
        flying.sort_by_key(|(end_ns, ..)| *end_ns);
        for (end_ns, index, charge) in flying {
            end(index, charge, end_ns);
        }
    }
    assert!(far <= 6, "{far} of 600 writes went to the path that is three times as far");
}
