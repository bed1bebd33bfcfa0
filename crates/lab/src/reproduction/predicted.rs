//! What the light simulation says of the very scenarios that ran live: fitted to the machine,
//! scaled.

use super::plan::Plan;
use crate::cell::Cell;
use crate::light;
use crate::live::as_run;
use crate::result::{CellResult, Circumstances, Mode};
use crate::scenario::{Problem, Run, Scenario};

/// A light cell for each live one.
///
/// # Errors
/// One of them can not be simulated.
pub fn predicted(
    plan: &Plan,
    scenarios: &[Scenario],
    cells: &[CellResult],
) -> Result<Vec<CellResult>, Problem> {
    let mut found = Vec::new();
    for live in cells.iter().filter(|cell| cell.mode == Mode::Live) {
        let Some(asked) = scenarios.iter().find(|one| one.name == live.scenario) else { continue };
        let mut asked = asked.clone();
        let run = Run { ramp_ns: live.ramp_ns, window_ns: live.window_ns, ..asked.run };
        asked.set_run(run);
        let in_grid = |name: &String| *name == live.scenario;
        let keep_depth =
            plan.sections.iter().any(|one| one.grid && one.scenarios.iter().any(in_grid));
        // Cells that do not tell are from before there was a floor.
        let unsaid = if keep_depth { 1000 } else { live.scale_permille };
        let open = live.open_permille.unwrap_or(unsaid);
        let scenario = as_run(&asked, live.scale_permille, open);
        let Some(variant) = scenario.variants.iter().find(|one| one.name == live.variant) else {
            continue;
        };
        let cell = Cell { scenario: &scenario, variant, seed: live.run };
        let how = Circumstances {
            scale_permille: live.scale_permille,
            open_permille: live.open_permille,
            ..Circumstances::simulated(Mode::Light)
        };
        found.push(CellResult::new(cell, &light::run(cell)?, &how));
    }
    Ok(found)
}
