//! Plays a scenario step by step.

use std::time::Duration;

use serde_saphyr::Spanned;

use super::cluster_view::{self, GangLine, GroupLine, NodeUsage, PodLine};
use super::format::{OneOrMany, Scenario, ScenarioError, Step};
use super::kubectl::{self, CommandOutcome};
use crate::api::{Actor, WebhookCall};
use crate::cluster::{Cluster, PodEnd, RecordedEvent, START, SimOptions, Violation};

/// Simulated time within which a step must settle.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Plays a scenario on a simulated cluster.
pub struct Runner {
    scenario: Scenario,
    cluster: Cluster,
    next: usize,
}

/// The result of one step.
#[derive(Clone, Debug, Default)]
pub struct StepResult {
    /// Number of the step, from 1.
    pub number: usize,
    /// Line in the file.
    pub line: u64,
    /// Explanation for the reader.
    pub say: Option<String>,
    /// The actions, as kubectl commands.
    pub commands: Vec<String>,
    /// Output of kubectl.
    pub output: Vec<String>,
    /// Warnings of the webhook.
    pub warnings: Vec<String>,
    /// Rejected objects.
    pub rejected: Vec<Rejection>,
    /// Events that the engines recorded, in order.
    pub events: Vec<RecordedEvent>,
    /// Simulated time from the first action until the cluster settled.
    pub took: Duration,
    /// Simulated time at the end of the step, since the start of the scenario.
    pub at: Duration,
    /// All pods at the end.
    pub pods: Vec<PodLine>,
    /// All gangs at the end.
    pub gangs: Vec<GangLine>,
    /// All group objects at the end.
    pub groups: Vec<GroupLine>,
    /// All nodes at the end.
    pub nodes: Vec<NodeUsage>,
    /// Expectations and their results.
    pub expectations: Vec<Expectation>,
    /// Violated invariants. There must be none.
    pub violations: Vec<Violation>,
}

/// A rejected object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Name.
    pub name: String,
    /// Causes, as `field: message`.
    pub causes: Vec<String>,
    /// Output of kubectl.
    pub printed: String,
}

/// One expectation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// Line of the `expect` in the file.
    pub line: u64,
    /// The expectation as a sentence.
    pub text: String,
    /// `Ok`, or the actual state.
    pub verdict: Result<(), String>,
}

impl StepResult {
    /// Whether every expectation holds and no invariant is violated.
    pub fn is_as_expected(&self) -> bool {
        self.violations.is_empty() && self.expectations.iter().all(|expectation| expectation.verdict.is_ok())
    }

    /// Failed expectations and violations, one sentence each.
    pub fn failures(&self) -> Vec<String> {
        let found = |e: &Expectation| {
            let problem = e.verdict.as_ref().err()?;
            Some(format!("line {}: expected that {}, but {problem}", e.line, e.text))
        };
        let unexpected = self.expectations.iter().filter_map(found);
        unexpected.chain(self.violations.iter().map(ToString::to_string)).collect()
    }
}

impl Runner {
    /// Sets up the cluster. Pods are sent to the webhook `admit`; `None` is a cluster without a webhook.
    ///
    /// # Errors
    /// When a node or manifest of the cluster cannot be created.
    pub fn new(scenario: Scenario, admit: Option<WebhookCall>) -> Result<Self, ScenarioError> {
        Self::with_options(scenario.settings.options(), scenario, admit)
    }

    /// The same with other options.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_options(
        options: SimOptions,
        scenario: Scenario,
        admit: Option<WebhookCall>,
    ) -> Result<Self, ScenarioError> {
        let seed = scenario.settings.random_faults.as_ref().map_or(0, |random| random.seed);
        let cluster = Cluster::new(options, seed, admit);
        let mut runner = Self { cluster, scenario, next: 0 };
        runner.set_up()?;
        runner.cluster.settle(SETTLE_TIMEOUT);
        runner.cluster.take_recorded_events();
        Ok(runner)
    }

    /// The scenario that is played.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The cluster as it is now.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The trace since the last call, where the options enable it.
    pub fn take_trace(&mut self) -> Vec<String> {
        self.cluster.take_trace()
    }

    /// The current state of the cluster.
    pub fn current_state(&self) -> StepResult {
        StepResult {
            pods: cluster_view::pods(&self.cluster.api),
            gangs: cluster_view::gangs(&self.cluster.api),
            groups: cluster_view::groups(&self.cluster.api),
            nodes: cluster_view::nodes(&self.cluster.api),
            at: self.cluster.now().since(START),
            ..StepResult::default()
        }
    }

    /// Plays the next step; `None` after the last.
    ///
    /// # Errors
    /// When the step cannot be done: a missing object, an invalid taint.
    pub fn next_step(&mut self) -> Result<Option<StepResult>, ScenarioError> {
        let Some(step) = self.scenario.steps.get(self.next).cloned() else { return Ok(None) };
        self.next += 1;
        let begun = self.cluster.now();
        let mut result = StepResult {
            number: self.next,
            line: step.referenced.line(),
            say: step.value.say.clone(),
            ..StepResult::default()
        };
        let fail = |problem| ScenarioError { file: self.scenario.file.clone(), line: result.line, problem };
        let failed = fail(String::new());
        match self.perform_actions(&step.value, &mut result) {
            Ok(()) => {}
            Err(StepError::Text(_)) if step.value.tolerant => {}
            Err(problem) => {
                return Err(problem.unwrap_or_else(|text| ScenarioError { problem: text, ..failed }));
            }
        }
        let settled = self.settle_step(&step.value);
        if step.value.settle == Some(false) && step.value.expect.is_none() {
            result.violations = self.cluster.take_violations();
            return Ok(Some(result));
        }
        let seen = self.current_state();
        result.took = self.cluster.now().since(begun);
        (result.pods, result.nodes, result.at) = (seen.pods, seen.nodes, seen.at);
        (result.gangs, result.groups) = (seen.gangs, seen.groups);
        result.events = self.cluster.take_recorded_events();
        result.output.extend(self.cluster.take_controller_lines());
        if !settled {
            result.expectations.push(Expectation {
                line: result.line,
                text: "the cluster settles".to_owned(),
                verdict: Err(format!("it is still changing after {} s", SETTLE_TIMEOUT.as_secs())),
            });
        }
        if let Some(expect) = &step.value.expect {
            let line = expect.referenced.line();
            for (text, verdict) in expect.value.check(&result) {
                result.expectations.push(Expectation { line, text, verdict });
            }
        }
        if self.cluster.has_armed_faults() && !step.value.stop_faults {
            let verdict = Err("it did not happen".to_owned());
            result.expectations.push(Expectation {
                line: result.line,
                text: "the fault happens".to_owned(),
                verdict,
            });
        }
        result.violations = self.cluster.take_violations();
        Ok(Some(result))
    }

    fn settle_step(&mut self, step: &Step) -> bool {
        if let Some(span) = step.advance {
            self.cluster.advance(span.0);
        }
        if step.settle == Some(false) {
            return true;
        }
        let settled = self.cluster.settle(SETTLE_TIMEOUT);
        if settled {
            self.cluster.check_liveness();
        }
        settled
    }

    fn perform_actions(&mut self, step: &Step, result: &mut StepResult) -> Result<(), StepError> {
        let cluster = &mut self.cluster;
        if let Some(fault) = &step.fault {
            let injected = fault.value.injected_fault()?;
            match fault.value.after {
                Some(moment) => cluster.arm(moment, fault.value.count.unwrap_or(1), injected),
                None => cluster.inject_fault(&injected),
            }
        }
        if step.stop_faults {
            cluster.stop_faults();
        }
        for object in &step.objects {
            add_outcome(kubectl::apply(cluster, object), result);
        }
        if let Some(block) = &step.apply {
            result.commands.push("kubectl apply -f -".to_owned());
            for document in self.scenario.documents(block).map_err(StepError::Scenario)? {
                add_outcome(kubectl::apply(&mut self.cluster, &document), result);
            }
        }
        for object in &step.inject_objects {
            self.cluster.api.inject(object.clone()).map_err(|status| status.message)?;
            self.cluster.settle_writes();
        }
        if let Some(block) = &step.inject {
            self.inject(block)?;
        }
        let cluster = &mut self.cluster;
        for target in step.delete.iter().flat_map(OneOrMany::all) {
            result.commands.push(format!("kubectl delete {target}"));
            let outcome = kubectl::delete(cluster, target)?;
            if let Some((_, status)) = outcome.refused.as_ref().filter(|_| !step.tolerant) {
                return Err(StepError::Text(status.kubectl()));
            }
            add_outcome(outcome, result);
        }
        for (name, replicas) in &step.scale {
            result.commands.push(format!("kubectl scale deployment {name} --replicas={replicas}"));
            result.output.extend(kubectl::scale(cluster, name, *replicas)?);
        }
        for (node, taint) in &step.taint {
            result.commands.push(format!("kubectl taint node {node} {taint}"));
            result.output.extend(kubectl::set_taint(cluster, node, taint)?);
        }
        for node in step.cordon.iter().flat_map(OneOrMany::all) {
            result.commands.push(format!("kubectl cordon {node}"));
            result.output.extend(kubectl::cordon(cluster, node, true)?);
        }
        for node in step.uncordon.iter().flat_map(OneOrMany::all) {
            result.commands.push(format!("kubectl uncordon {node}"));
            result.output.extend(kubectl::cordon(cluster, node, false)?);
        }
        for (pods, end, what) in [
            (&step.finish, PodEnd::Succeeded, "has succeeded"),
            (&step.fail, PodEnd::Failed, "has failed"),
            (&step.crash, PodEnd::Crashed, "has crashed"),
        ] {
            for name in pods.iter().flat_map(OneOrMany::all) {
                let (namespace, bare) = name.split_once('/').unwrap_or(("default", name));
                if !cluster.end_pod(namespace, bare, end) {
                    return Err(StepError::Text(format!(
                        "pod {name} does not run, so its containers cannot end"
                    )));
                }
                result.output.push(format!("pod/{bare} {what}"));
            }
        }
        for (pod, gate) in &step.ungate {
            result.output.extend(kubectl::ungate(cluster, pod, gate)?);
        }
        Ok(())
    }

    fn inject(&mut self, block: &Spanned<String>) -> Result<(), StepError> {
        for document in self.scenario.documents(block).map_err(StepError::Scenario)? {
            self.cluster.api.inject(document).map_err(|status| status.message)?;
            self.cluster.settle_writes();
        }
        Ok(())
    }

    fn set_up(&mut self) -> Result<(), ScenarioError> {
        let fail = |file: &str, line, problem| ScenarioError { file: file.to_owned(), line, problem };
        let file = self.scenario.file.clone();
        for node in &self.scenario.cluster.nodes {
            let object = node.object().map_err(|problem| fail(&file, 0, problem))?;
            let made = self.cluster.api.create(&Actor::User, object);
            made.map_err(|status| fail(&file, 0, status.kubectl()))?;
            self.cluster.settle_writes();
        }
        if let Some(block) = self.scenario.cluster.manifests.clone() {
            let line = block.referenced.line();
            for document in self.scenario.documents(&block)? {
                if let Some((_, status)) = kubectl::apply(&mut self.cluster, &document).refused {
                    return Err(fail(&file, line, status.kubectl()));
                }
            }
        }
        Ok(())
    }
}

/// Why a step could not be done.
enum StepError {
    Scenario(ScenarioError),
    Text(String),
}

impl StepError {
    fn unwrap_or_else(self, place: impl FnOnce(String) -> ScenarioError) -> ScenarioError {
        match self {
            Self::Scenario(error) => error,
            Self::Text(text) => place(text),
        }
    }
}

impl From<String> for StepError {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

fn add_outcome(outcome: CommandOutcome, result: &mut StepResult) {
    let printed = outcome.lines.join("\n");
    result.output.extend(outcome.lines);
    result.warnings.extend(outcome.warnings);
    if let Some((key, status)) = outcome.refused {
        result.rejected.push(Rejection {
            name: key.name.to_string(),
            causes: status.causes.iter().map(|(field, message)| format!("{field}: {message}")).collect(),
            printed,
        });
    }
}
