use super::{Plan, grid, page, predicted};
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

#[test]
fn a_grid_has_processor_time_and_latencies_of_both_sides() {
    let text = r#"
        title = "One cell"
        [run]
        ramp = "50ms"
        window = "200ms"
        [target]
        servers = 3
        write = "11us"
        [[path]]
        name = "device"
        [[job]]
        rw = "randwrite"
        bs = "4k"
        iodepth = 2
        numjobs = 4
        [[variant]]
        name = "multi-queue"
        policy = "numa"
        [[variant]]
        name = "single-queue"
        policy = "numa"
        io_queues = 1
        [[published]]
        policy = "multi-queue"
        iops = 270000
        cpu_user = 11.58
        cpu_system = 13.26
        min = "10us"
        max = "175us"
        mean = "29260ns"
        stdev = "1770ns"
        [[published]]
        policy = "single-queue"
        iops = 267000
        cpu_user = 10.02
        cpu_system = 16.28
    "#;
    let scenario = file::parse(text, "cell.toml").expect("a scenario").scenario;
    let variants = scenario.variants.iter().filter(|it| it.name.ends_with("-queue"));
    let cells: Vec<CellResult> = variants
        .map(|variant| {
            let cell = Cell { scenario: &scenario, variant, seed: 1 };
            let figures = light::run(cell).expect("a cell that can be run");
            CellResult::new(cell, &figures, &Circumstances::simulated(Mode::Light))
        })
        .collect();
    let table = grid::table(&[&scenario], &cells, Mode::Light);
    // Per job 24.84 % of a processor: four of them, 270,000 times a second.
    let multi = "| 4 × 2 | multi-queue | 270000 | 3.7 | 10 / 29.26 / 175 | 1.77 | ";
    assert!(table.contains(multi), "{table}");
    let single = "| 4 × 2 | single-queue | 267000 | 3.9 | - / - / - | - | ";
    assert!(table.contains(single), "{table}");
    // 3.68 of 3.94 us.
    let over = table.lines().last().expect("a line");
    assert!(over.starts_with("| 4 × 2 | 1.01 | ") && over.contains(" | 0.93 | "), "{table}");
}
