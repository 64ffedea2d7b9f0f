//! Sends the effects of the engine as requests: concurrently, up to a limit.
//!
//! Invariant: each effect that needs an answer is answered exactly once, whatever happens to its request.

use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use portcullis_core::api::ApiResponse;
use portcullis_core::engine::wire;
use portcullis_core::engine::{Action, Effect, Event, RequestOutcome, RequestTarget};
use tokio::sync::{Semaphore, mpsc};

use super::client::{Client, respond};
use super::failpoint::{Side, reached};
use super::lease::LeaseClient;
use crate::telemetry::ClusterMetrics;

/// Upper bound for the `Retry-After` of the API server. Then the engine decides again.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(5);

/// Sends effects and returns their answers as events. Cheap to clone.
#[derive(Clone)]
pub(super) struct EffectSender {
    client: Client,
    lease: Arc<LeaseClient>,
    metrics: ClusterMetrics,
    slots: Arc<Semaphore>,
    concurrency: u32,
    answers: mpsc::UnboundedSender<Event>,
}

impl EffectSender {
    pub(super) fn new(
        client: Client,
        lease: Arc<LeaseClient>,
        metrics: ClusterMetrics,
        concurrency: u32,
        answers: mpsc::UnboundedSender<Event>,
    ) -> Self {
        let slots = Arc::new(Semaphore::new(usize::try_from(concurrency).unwrap_or(usize::MAX)));
        Self { client, lease, metrics, slots, concurrency, answers }
    }

    /// Starts an effect: a request about one object, or a read of the lease. Effects may overtake each
    /// other, because the engine has at most one in flight for each target.
    pub(super) fn send(&self, effect: Effect) {
        let this = self.clone();
        tokio::spawn(async move { this.perform(effect).await });
    }

    /// Waits until no request is in flight, at most for `timeout`.
    pub(super) async fn wait_until_idle(&self, timeout: Duration) {
        let all = self.slots.acquire_many(self.concurrency);
        if tokio::time::timeout(timeout, all).await.is_err() {
            tracing::warn!("requests still in flight at shutdown; the next leader reads their outcome");
        }
    }

    async fn perform(self, effect: Effect) {
        let mut pending = PendingAnswer { effect: Some(effect), answers: self.answers.clone() };
        let Some(effect) = pending.effect.clone() else { return };
        let name = action_name(&effect.action);
        if effect.action == Action::ReadLease {
            reached(Side::Before, name);
            let begun = Instant::now();
            let outcome = self.lease.verify(effect.epoch).await;
            reached(Side::After, name);
            let duration_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
            tracing::debug!(epoch = %effect.epoch, action = name, ?outcome, duration_us, "request completed");
            pending.answer(Event::Answer { epoch: effect.epoch, subject: RequestTarget::Lease, outcome });
            return;
        }
        let Some(request) = wire::request_for(&effect) else { return };
        // The semaphore is never closed.
        let Ok(_slot) = self.slots.acquire().await else { return };
        let begun = Instant::now();
        reached(Side::Before, name);
        let reply = self.client.exchange(&request).await;
        reached(Side::After, name);
        let retry_after = reply.as_ref().ok().and_then(|reply| reply.retry_after);
        let response = respond(&request.verb, reply);
        if matches!(response, ApiResponse::Status { code: 429, .. }) {
            // The API server is overloaded. The slot stays taken, so other requests wait, too.
            tokio::time::sleep(retry_after.unwrap_or_default().min(MAX_RETRY_AFTER)).await;
        }
        log(&effect, &response, begun.elapsed());
        if matches!(effect.action, Action::Lift { .. }) {
            self.metrics.count_lift(matches!(response, ApiResponse::Object(_)));
        }
        if matches!(effect.action, Action::WriteGroup { .. }) {
            self.metrics.count_group_status_write(matches!(response, ApiResponse::Object(_)));
        }
        match wire::event_for(&effect, response) {
            Some(answer) => pending.answer(answer),
            None => pending.effect = None,
        }
    }
}

/// An effect without an answer yet. Dropping it answers with an unknown outcome.
struct PendingAnswer {
    effect: Option<Effect>,
    answers: mpsc::UnboundedSender<Event>,
}

impl PendingAnswer {
    fn answer(&mut self, event: Event) {
        self.effect = None;
        // The receiver is gone when the process ends.
        let _ = self.answers.send(event);
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        let Some(effect) = self.effect.take() else { return };
        let answer = match &effect.action {
            Action::ReadLease => Some(Event::Answer {
                epoch: effect.epoch,
                subject: RequestTarget::Lease,
                outcome: RequestOutcome::Unknown,
            }),
            _ => wire::event_for(&effect, ApiResponse::Lost),
        };
        if let Some(answer) = answer {
            let _ = self.answers.send(answer);
        }
    }
}

/// Logs the outcome of an effect: evictions at `info`, other successes at `debug`, failures at their level.
fn log(effect: &Effect, response: &ApiResponse, took: Duration) {
    let (epoch, action) = (effect.epoch, action_name(&effect.action));
    let about = match &effect.action {
        Action::CreateGang { gang, .. }
        | Action::ReadGang { gang }
        | Action::WriteGang { gang, .. }
        | Action::DeleteGang { gang, .. }
        | Action::WriteGroup { gang, .. } => gang.to_string(),
        Action::ReadOwner { gang, owner } => format!("{} {}/{}", owner.kind, gang.namespace, owner.name),
        Action::ReadPod { pod }
        | Action::Fence { pod, .. }
        | Action::Nominate { pod, .. }
        | Action::Evict { pod, .. } => pod.key.to_string(),
        Action::Lift { pod, .. } | Action::TryLift { pod, .. } => pod.key.to_string(),
        Action::List | Action::ReadLease | Action::StepDown | Action::RecordEvent(_) => String::new(),
    };
    if matches!(effect.action, Action::WriteGroup { .. }) {
        return log_group_status_write(&about, response);
    }
    match response {
        ApiResponse::Object(_) => {
            if let Action::Evict { message, .. } = &effect.action {
                tracing::info!(%epoch, pod = about, cause = message, "pod evicted");
            } else {
                let duration_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
                tracing::debug!(%epoch, action, object = about, duration_us, "request completed");
            }
        }
        ApiResponse::Status { code: 404, .. } => {
            tracing::debug!(%epoch, action, object = about, "object does not exist any more");
        }
        ApiResponse::Stale { message } => {
            tracing::debug!(%epoch, action, object = about, problem = message, "object has changed");
        }
        ApiResponse::DeniedByWebhook { code, message } => {
            tracing::warn!(%epoch, action, object = about, code, problem = message, "an admission webhook denied the request; trying again");
        }
        ApiResponse::DryRunUnsupported { message } => {
            tracing::info!(%epoch, object = about, problem = message, "a webhook with side effects prevents the dry run of a lift; lifting without it");
        }
        ApiResponse::DisruptionBudget { message } => {
            tracing::warn!(%epoch, pod = about, problem = message, "a PodDisruptionBudget does not allow the eviction; trying again");
        }
        ApiResponse::Status { code: 403, message } => {
            tracing::error!(%epoch, action, object = about, problem = message, "request forbidden by RBAC or an admission policy; if RBAC rules are missing, apply manifests/ again");
        }
        ApiResponse::Status { code, message } => {
            tracing::warn!(%epoch, action, object = about, code, problem = message, "API server rejected the request; trying again");
        }
        ApiResponse::Lost => {
            tracing::warn!(%epoch, action, object = about, "write outcome unknown; reading the object again");
        }
    }
}

/// Logs the outcome of a group status write. A rejection is logged once per process, because no part of the
/// engine depends on the status of a group.
fn log_group_status_write(group: &str, response: &ApiResponse) {
    static LOGGED: Once = Once::new();
    if let Some(problem) = response.problem().filter(|_| *response != ApiResponse::Lost) {
        LOGGED.call_once(|| {
            tracing::info!(
                group,
                problem,
                "group status write rejected; gangs are not affected, and further rejections are not logged \
                 (metric group_status_refused counts them; --group-status never disables these writes)"
            );
        });
    }
    tracing::debug!(
        group,
        accepted = matches!(response, ApiResponse::Object(_)),
        "group status write answered"
    );
}

/// The name of an action in logs and fail points.
pub(super) fn action_name(action: &Action) -> &'static str {
    match action {
        Action::List => "List",
        Action::ReadLease => "ReadLease",
        Action::StepDown => "StepDown",
        Action::CreateGang { .. } => "CreateGang",
        Action::ReadGang { .. } => "ReadGang",
        Action::WriteGang { .. } => "WriteGang",
        Action::DeleteGang { .. } => "DeleteGang",
        Action::WriteGroup { .. } => "WriteGroup",
        Action::ReadOwner { .. } => "ReadOwner",
        Action::ReadPod { .. } => "ReadPod",
        Action::Fence { .. } => "Fence",
        Action::Nominate { .. } => "Nominate",
        Action::TryLift { .. } => "TryLift",
        Action::Lift { .. } => "Lift",
        Action::Evict { .. } => "Evict",
        Action::RecordEvent(_) => "RecordEvent",
    }
}
