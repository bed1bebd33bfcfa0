use super::{Plan, page, predicted};
use crate::cell::Cell;
use crate::light;
use crate::result::{CellResult, Circumstances, Mode};
use crate::scenario::{Scenario, file};

const PLAN: &str = r#"
    factor_percent = 125
    differences = "Burners."
    [[section]]
    title = "Four to one"
    source = "a mail"
    scenarios = ["small"]
    remark = "The mail's slow path was not held to its rate."
"#;

fn scenario() -> Scenario {
    let text = r#"
        title = "Small"
        [run]
        ramp = "50ms"
        window = "200ms"
        [[path]]
        name = "fast"
        rate = "400mbit"
        [[path]]
        name = "slow"
        rate = "100mbit"
        [[job]]
        rw = "randread"
        bs = "4k"
        iodepth = 32
        [[published]]
        policy = "round-robin"
        mib_s = 100
        [[published]]
        policy = "queue-depth"
        mib_s = 250
        [[published]]
        policy = "by hand"
        iops = 7
    "#;
    file::parse(text, "small.toml").expect("a scenario").scenario
}

/// Round-robin and queue-depth, six runs each.
fn cells(scenario: &Scenario, mode: Mode) -> Vec<CellResult> {
    let wanted = |name: &str| ["round-robin", "queue-depth"].contains(&name);
    let variants = scenario.variants.iter().filter(|variant| wanted(&variant.name));
    let runs = variants.flat_map(|variant| (1..=6).map(move |seed| (variant, seed)));
    runs.map(|(variant, seed)| {
        let cell = Cell { scenario, variant, seed };
        let figures = light::run(cell).expect("a cell that can be run");
        CellResult::new(cell, &figures, &Circumstances::simulated(mode))
    })
    .collect()
}

fn made(scenario: &Scenario, cells: &[CellResult]) -> String {
    let (plan, scenarios) = (Plan::parse(PLAN).expect("a plan"), std::slice::from_ref(scenario));
    let predicted = predicted(&plan, scenarios, cells).expect("cells that can be run");
    page(&plan, scenarios, cells, &predicted)
}

#[test]
fn published_rows_stand_beside_their_variants_and_a_sentence_says_whether_they_agree() {
    let scenario = scenario();
    let page = made(&scenario, &cells(&scenario, Mode::Light));
    let row = page.lines().find(|line| line.starts_with("| round-robin |")).expect("a row");
    assert!(row.starts_with("| round-robin | 100 | 40.0 | "), "{row}");
    assert!(page.contains("| by hand | 7 IOPS |"), "{page}");
    assert!(page.contains("light: order of 1 of 1 pairs as published; ratios"), "{page}");
    assert!(page.contains("| numa | - | - | - |"), "variants without runs are told: {page}");
    assert!(page.contains("The mail's slow path was not held"), "{page}");
}

#[test]
fn modes_that_agree_and_modes_that_do_not_are_told_apart() {
    let scenario = scenario();
    let mut both = cells(&scenario, Mode::Light);
    both.extend(cells(&scenario, Mode::Live));
    let page = made(&scenario, &both);
    assert!(
        page.contains("1 scenarios. % of limit differs by at most 5 points: in 1 for every"),
        "{page}"
    );
    assert!(page.contains("| small | 100.0 % | 2 | 0.0 | - | 0.0 | 1 | 1 |  |"), "{page}");
    // Live, the better one is the worse one.
    for cell in both.iter_mut().filter(|cell| cell.mode == Mode::Live) {
        if cell.variant == "queue-depth" {
            cell.total.bytes_s /= 4;
        }
    }
    let page = made(&scenario, &both);
    assert!(
        page.contains("1 scenarios. % of limit differs by at most 5 points: in 0 for every"),
        "{page}"
    );
    assert!(page.contains("| queue-depth | 0.0 | 1 | 0 |  |"), "{page}");
}

#[test]
fn a_plan_that_names_no_scenario_is_noticed() {
    let plan = Plan::parse(&PLAN.replace("\"small\"", "\"small\", \"gone\"")).expect("a plan");
    assert_eq!(plan.sections[0].missing(&[scenario()]), ["gone"]);
    assert!(Plan::parse("factor_percent = 125\ndifferences = \"\"\nodd = 1").is_err());
}
