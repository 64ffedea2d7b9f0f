//! Checks which pods an engine may delete because they have expired.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::checker::met;
use super::quorum_history::QuorumHistory;
use portcullis_core::dialect::OnStale;
use portcullis_core::engine::{ConditionStatus, ConditionType, GangRecord, GangStatus};
use portcullis_core::model::{PodUid, Str, Time};
use portcullis_core::pod::Pod;

/// Problems with newly expired pods. They must be all waiting pods of a gang that has not started, or all
/// remaining pods of a gang that was complete. An expiry is never taken back.
pub(super) fn expired(
    before: Option<&Arc<GangRecord>>,
    after: &GangRecord,
    pods: &BTreeMap<PodUid, (Arc<Pod>, Option<Time>)>,
    quorums: &QuorumHistory,
) -> Vec<String> {
    let known = before.map(|before| before.status.expired.as_slice()).unwrap_or_default();
    let new: Vec<&PodUid> = after.status.expired.iter().filter(|uid| !known.contains(uid)).collect();
    let forgotten = known.iter().filter(|uid| !after.status.expired.contains(uid));
    let there =
        forgotten.filter_map(|uid| pods.get(uid)).filter(|(pod, gone)| gone.is_none() && !pod.terminating);
    let mut problems: Vec<String> = (there.filter(|(pod, _)| !pod.finished()))
        .map(|(pod, _)| format!("{} had expired, and gang {} does not list it any more", pod.key, after.gang))
        .collect();
    if new.is_empty() {
        return problems;
    }
    let mine = |pod: &Pod| pod.membership.as_ref().is_some_and(|m| m.gang == after.gang);
    let running: Vec<&Arc<Pod>> = (pods.values())
        .filter(|(pod, gone)| gone.is_none() && mine(pod) && !pod.gated())
        .filter(|(pod, _)| !pod.terminating && !pod.finished())
        .map(|(pod, _)| pod)
        .collect();
    let gated = new.iter().filter(|uid| pods.get(**uid).is_some_and(|(pod, _)| pod.gated())).count();
    if gated > 0 {
        // Pods may have been deleted in the meantime, but a pod that has started stays started.
        if let Some(pod) = running.first() {
            problems.push(format!(
                "{gated} waiting pods of gang {} have expired, while {} runs",
                after.gang, pod.key
            ));
        }
        if after.status.plan.is_some() {
            problems.push(format!("waiting pods of gang {} have expired, and there is a plan", after.gang));
        }
        return problems;
    }
    if let Some(torn) = &after.status.torn {
        let before = before.and_then(|before| before.status.torn.as_ref()).map_or(0, |torn| torn.retries);
        let planned = |uid: &PodUid| {
            after.status.plan.iter().flat_map(|plan| &plan.members).any(|member| member.uid == *uid)
        };
        let unplanned = new.iter().filter(|uid| torn.retries > before && !planned(uid));
        problems.extend(unplanned.map(|uid| format!("{uid} is not of the torn plan, and is replaced")));
        return problems;
    }
    let mut roles: BTreeMap<Option<Str>, u32> = BTreeMap::new();
    for pod in &running {
        *roles.entry(pod.membership.as_ref().and_then(|m| m.role.clone())).or_default() += 1;
    }
    let whole = before.is_some_and(|before| before.status.started_with > 0) || after.status.started_with > 0;
    if !whole || quorums.of(&after.gang).all(|quorum| met(quorum, None, &roles)) {
        problems.push(format!("gang {} is sent away, and {roles:?} of it run", after.gang));
    }
    problems
}

/// Pods that should have been deleted long ago.
pub(super) fn overdue(
    status: &GangStatus,
    live: &[&Arc<Pod>],
    on_stale: OnStale,
    grace: Duration,
    now: Time,
) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some(pod) = live.iter().find(|pod| status.expired.contains(&pod.uid)) {
        problems.push(format!("{} has expired, and is still there", pod.key));
    }
    let stale = status.conditions.iter().find(|c| c.kind == ConditionType::Stale);
    if let Some(stale) = stale.filter(|c| c.status == ConditionStatus::True && on_stale == OnStale::Evict)
        && now.since(stale.last_transition_time) > grace.saturating_add(Duration::from_secs(60))
    {
        problems.push(format!("stale since {}, and not evicted", stale.last_transition_time));
    }
    problems
}
