//! The index of members by pod: the engine notices when the index and the gangs differ.

use super::*;

/// An entry for a pod that its gang does not have: the engine counts it, or panics in a debug build.
#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "the gang of a pod has the pod as a member"))]
fn an_index_entry_without_a_member_is_a_counted_violation() {
    let (mut lab, _) =
        Lab::leading(&EngineSettings::default(), vec![node("gpu-1", 1, "")], vec![group(2)], Vec::new());
    lab.engine.gang_by_pod.insert(PodUid::from("gone"), gang_id());
    assert!(lab.engine.member(&PodUid::from("gone")).is_none());
    assert_eq!(lab.engine.invariant_violations(), 1);
}

#[test]
#[should_panic(expected = "the index of members names the members of all gangs")]
fn a_member_without_an_index_entry_is_found() {
    let waiting = pod("a", 4000, &[names::GATE]);
    let uid = waiting.uid.clone();
    let (mut lab, _) =
        Lab::leading(&EngineSettings::default(), vec![node("gpu-1", 1, "")], vec![group(2)], vec![waiting]);
    lab.engine.assert_consistent();
    lab.engine.gang_by_pod.remove(&uid);
    lab.engine.assert_consistent();
}
