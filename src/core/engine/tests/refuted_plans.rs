//! A plan that the check of plans refutes: a defect of the planner, which a test plants.

use super::*;
use crate::planner::{PlanningCase, planted_bug};

#[test]
fn a_refuted_plan_is_withheld_and_counted_and_kept() {
    planted_bug::set(true);
    let nodes = vec![node("a-without-cards", 0, ""), node("b-with-cards", 2, "")];
    let pods = vec![pod("a", 8000, &[names::GATE]), pod("b", 8000, &[names::GATE])];
    let (mut lab, actions) = Lab::leading(&EngineSettings::default(), nodes, vec![group(2)], pods);
    let left = lab.run(actions, |_| false);
    assert_eq!(lab.gated(), ["a", "b"], "no gate is removed");
    let status = lab.status();
    assert_eq!((status.phase, status.reason), (Phase::Waiting, Some(Reason::PlanRefuted)));
    assert!(status.message.contains("pod default/a on node a-without-cards"), "{}", status.message);
    let events = recorded_events(&left);
    assert!(events.iter().any(|(reason, _)| *reason == Reason::PlanRefuted), "{events:?}");
    let (number, case) = lab.engine.refuted_plans();
    let case = case.expect("the case of the refuted plan").clone();
    assert_eq!(number, 1);

    // The case can be planned elsewhere.
    let json = serde_json::to_string(&*case).expect("JSON");
    let read: PlanningCase = serde_json::from_str(&json).expect("a planning case");
    assert_eq!(read, *case);
    let (recorded, _, report) = read.replay();
    assert_eq!(recorded, case.violations);
    assert!(report.refuted.is_some(), "the defect is still there");
    planted_bug::set(false);
    let (recorded, plan, report) = read.replay();
    assert_eq!((recorded, report.refuted), (case.violations.clone(), None));
    assert_eq!(plan.gangs[0].assignments.len(), 2);

    // The gang is planned again when a node changes.
    let mut actions =
        lab.step(Event::Node(Change::Set(node("a-without-cards", 0, r#","unschedulable":true"#))));
    actions.extend(lab.tick());
    lab.run(actions, |_| false);
    assert_eq!(lab.gated(), [""; 0], "all gates are removed");
    assert_eq!(lab.engine.refuted_plans().0, 1);
}
