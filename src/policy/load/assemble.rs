//! Assembles objects to policies with their bindings, parameters and exceptions. Checks the references
//! between them: duplicate names, bindings without a policy, policies without a binding, objects that no
//! policy uses.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_core::model::closest;
use serde::Deserialize;
use serde_json::Value as Json;

use super::document::{DocumentRole, PORTCULLIS_GROUP, PORTCULLIS_KINDS, PORTCULLIS_VERSION, SourceDocument};
use super::source_text::SourceText;
use super::{LoadCounts, Problem};
use crate::api::ResourceRule;
use crate::checks::{TypedEnvironments, api_rules, schema_check, typed_expressions};
use crate::diagnostic::{Diagnostic, Severity};
use crate::evaluation::{CompiledPolicies, MutatingPolicy, ParamStore, ValidatingPolicy};
use crate::gang_policy;
use crate::json::value_at;
use crate::schema::{Schema, served_resources};
use crate::set::{PolicyEntry, PolicyException};

/// The result of assembling.
#[derive(Debug, Default)]
pub(super) struct AssembledSet {
    pub(super) problems: Vec<Problem>,
    pub(super) counts: LoadCounts,
    pub(super) policies: Vec<PolicyEntry>,
    pub(super) rules: CompiledPolicies,
    /// Each with a problem at its `expires`.
    pub(super) exceptions: Vec<(PolicyException, Problem)>,
}

/// A policy that waits for its bindings.
struct KnownPolicy {
    document: usize,
    /// The compiled policy; `None` if it has an error.
    compiled: Option<CompiledPolicy>,
    has_params: bool,
    bound: bool,
}

/// A policy that can be evaluated.
enum CompiledPolicy {
    Validating(ValidatingPolicy),
    Mutating(MutatingPolicy),
}

impl CompiledPolicy {
    fn new(document: &Json, diagnostics: &mut Vec<Diagnostic>) -> Option<Self> {
        match text(document, "/kind") {
            "ValidatingAdmissionPolicy" => {
                ValidatingPolicy::compile(document, diagnostics).map(Self::Validating)
            }
            _ => MutatingPolicy::compile(document, diagnostics).map(Self::Mutating),
        }
    }

    fn bind(&mut self, binding: &Json, diagnostics: &mut Vec<Diagnostic>) {
        match self {
            Self::Validating(policy) => policy.bind(binding, diagnostics),
            Self::Mutating(policy) => policy.bind(binding, diagnostics),
        }
    }
}

struct SetAssembler<'a, 't> {
    documents: &'a [SourceDocument],
    texts: &'a [SourceText<'t>],
    made: AssembledSet,
    environments: TypedEnvironments,
    validating: BTreeMap<&'a str, KnownPolicy>,
    mutating: BTreeMap<&'a str, KnownPolicy>,
    /// Kinds that policies take parameters from.
    param_kinds: BTreeSet<(&'a str, &'a str)>,
    /// Names of other objects by version and kind; bindings can use them as parameters.
    objects: BTreeMap<(&'a str, &'a str), BTreeSet<&'a str>>,
    /// Names of all policies, for exceptions.
    names: BTreeSet<&'a str>,
    /// Policies translated from `GangPolicy` documents.
    translated: Vec<CompiledPolicy>,
    /// Kind and name of each translated policy, and its document.
    translated_names: Vec<(String, String, usize)>,
}

pub(super) fn assemble(documents: &[SourceDocument], texts: &[SourceText<'_>]) -> AssembledSet {
    let mut assembler = SetAssembler {
        documents,
        texts,
        made: AssembledSet::default(),
        environments: TypedEnvironments::default(),
        validating: BTreeMap::new(),
        mutating: BTreeMap::new(),
        param_kinds: BTreeSet::new(),
        objects: BTreeMap::new(),
        names: BTreeSet::new(),
        translated: Vec::new(),
        translated_names: Vec::new(),
    };
    assembler.check_duplicates();
    for document in documents.iter().filter(|document| document.role() == DocumentRole::Param) {
        let kind = (document.api_version(), document.kind());
        assembler.objects.entry(kind).or_default().insert(document.name());
    }
    for at in 0..documents.len() {
        assembler.policy(at);
    }
    for at in 0..documents.len() {
        assembler.process_other_object(at);
    }
    assembler.finish()
}

/// Returns the length of a list in `spec`.
fn count(document: &Json, list: &str) -> usize {
    document.pointer(&format!("/spec/{list}")).and_then(Json::as_array).map_or(0, Vec::len)
}

fn text<'j>(json: &'j Json, pointer: &str) -> &'j str {
    value_at(json, pointer).and_then(Json::as_str).unwrap_or_default()
}

impl<'a> SetAssembler<'a, '_> {
    fn report(&mut self, at: usize, diagnostic: Diagnostic) {
        let document = &self.documents[at];
        self.made.problems.push(document.problem(&self.texts[document.file], diagnostic));
    }

    fn report_all(&mut self, at: usize, diagnostics: Vec<Diagnostic>) {
        for diagnostic in diagnostics {
            self.report(at, diagnostic);
        }
    }

    /// Returns the location of a document: `policies/gpu.yaml:14`.
    fn place(&self, at: usize) -> String {
        let document = &self.documents[at];
        let text = &self.texts[document.file];
        format!("{}:{}", text.name, text.position(document.start().start).0)
    }

    fn check_duplicates(&mut self) {
        let mut known: BTreeMap<(DocumentRole, &str, &str, &str, &str), usize> = BTreeMap::new();
        for (at, document) in self.documents.iter().enumerate() {
            let role = document.role();
            if document.name().is_empty() || role == DocumentRole::Test {
                continue;
            }
            let version = if role == DocumentRole::Param { document.api_version() } else { "" };
            let namespace =
                if role == DocumentRole::Param { ParamStore::namespace_of(&document.json) } else { "" };
            let key = (role, version, document.kind(), namespace, document.name());
            if let Some(first) = known.get(&key) {
                let message = format!("there is another {} at {}", document.about(), self.place(*first));
                self.report(at, Diagnostic::error("/metadata/name", message));
            } else {
                known.insert(key, at);
            }
        }
    }

    /// Validates an object against its schema and returns its valid part.
    fn strict(&mut self, at: usize, known: &mut Vec<Diagnostic>) -> Json {
        let document = &self.documents[at];
        let Some(schema) = Schema::of(document.group(), document.version(), document.kind()) else {
            let versions: BTreeSet<&str> = served_resources()
                .iter()
                .filter(|one| one.group == document.group() && one.kind == document.kind())
                .map(|one| one.version)
                .collect();
            let versions: Vec<&str> = versions.into_iter().collect();
            let best = versions.first().map(|version| format!("{}/{version}", document.group()));
            let message = format!(
                "Kubernetes 1.36 has no {} of {:?}: it has {}",
                document.kind(),
                document.api_version(),
                versions.join(", ")
            );
            self.report(at, Diagnostic::error("/apiVersion", message).suggest(best));
            return document.json.clone();
        };
        let diagnostics = schema_check::check(&document.json, schema);
        self.add(at, known, diagnostics);
        schema_check::clean(&document.json, schema)
    }

    /// Adds the diagnostics of a later check without repeating known ones. A diagnostic is dropped at the
    /// location of a known error and within a value of a wrong type.
    fn add(&mut self, at: usize, known: &mut Vec<Diagnostic>, more: Vec<Diagnostic>) {
        let before = known.len();
        for diagnostic in more {
            let is_reported =
                known[..before].iter().filter(|one| one.severity == Severity::Error).any(|one| {
                    let same = one.pointer == diagnostic.pointer
                        && one.offset.is_none()
                        && diagnostic.offset.is_none();
                    let within = diagnostic
                        .pointer
                        .strip_prefix(&one.pointer)
                        .is_some_and(|rest| rest.starts_with('/'));
                    same || within
                        && (one.message == diagnostic.message || one.message.starts_with("this must be"))
                });
            let is_repeated =
                known[..before].iter().any(|one| one.message == diagnostic.message && one.offset.is_none());
            if !is_reported
                && (!is_repeated || !diagnostic.message.starts_with("matchConstraints is required"))
            {
                self.report(at, diagnostic.clone());
                known.push(diagnostic);
            }
        }
    }

    fn policy(&mut self, at: usize) {
        let document = &self.documents[at];
        let role = document.role();
        match role {
            DocumentRole::Validating | DocumentRole::Mutating => {
                self.made.counts.policies += 1;
                self.made.counts.rules += ["validations", "auditAnnotations", "mutations"]
                    .iter()
                    .map(|list| count(&document.json, list))
                    .sum::<usize>();
                self.admission_policy(at, role);
            }
            DocumentRole::GangPolicy => {
                self.made.counts.policies += 1;
                self.names.insert(document.name());
                self.version(at);
                let mut diagnostics = Vec::new();
                let translated = gang_policy::translate(&document.json, &mut diagnostics).unwrap_or_default();
                self.report_all(at, diagnostics);
                self.add_entry(at, &translated);
                self.translated(at, &translated);
            }
            _ => {}
        }
    }

    /// Adds a policy to the list of the set, with the resources that its evaluated form matches.
    fn add_entry(&mut self, at: usize, evaluated: &[Json]) {
        let document = &self.documents[at];
        let text_of = &self.texts[document.file];
        let selects = |kind: &str| {
            let policies = evaluated.iter().filter(|one| text(one, "/kind") == kind);
            let rules =
                policies.filter_map(|one| one.pointer("/spec/matchConstraints/resourceRules")?.as_array());
            rules.flatten().filter_map(|rule| ResourceRule::deserialize(rule).ok()).collect()
        };
        self.made.policies.push(PolicyEntry {
            validates: selects("ValidatingAdmissionPolicy"),
            mutates: selects("MutatingAdmissionPolicy"),
            kind: document.kind().to_owned(),
            name: document.name().to_owned(),
            file: text_of.name.to_owned(),
            line: text_of.position(document.start().start).0,
        });
    }

    fn admission_policy(&mut self, at: usize, role: DocumentRole) {
        let document = &self.documents[at];
        self.names.insert(document.name());
        let before = self.made.problems.len();
        let mut known = Vec::new();
        let cleaned = self.strict(at, &mut known);
        self.add_entry(at, std::slice::from_ref(&cleaned));
        let checks = if role == DocumentRole::Validating {
            api_rules::validating(&document.json)
        } else {
            api_rules::mutating(&document.json)
        };
        self.add(at, &mut known, checks);
        let mut found = Vec::new();
        let compiled = CompiledPolicy::new(&cleaned, &mut found);
        self.add(at, &mut known, found);
        let typed = typed_expressions::check(&cleaned, &known, &mut self.environments);
        self.add(at, &mut known, typed);
        let wrong = self.made.problems[before..].iter().any(|problem| problem.severity == Severity::Error);
        let kind = document.json.pointer("/spec/paramKind");
        if let Some(kind) = kind {
            self.param_kinds.insert((text(kind, "/apiVersion"), text(kind, "/kind")));
        }
        let policy = KnownPolicy {
            document: at,
            compiled: compiled.filter(|_| !wrong),
            has_params: kind.is_some_and(|kind| !kind.is_null()),
            bound: false,
        };
        let policies =
            if role == DocumentRole::Validating { &mut self.validating } else { &mut self.mutating };
        policies.entry(document.name()).or_insert(policy);
    }

    /// Compiles the policies and bindings translated from a `GangPolicy`.
    fn translated(&mut self, at: usize, translated: &[Json]) {
        let mut diagnostics = Vec::new();
        let mut made: BTreeMap<(&str, &str), CompiledPolicy> = BTreeMap::new();
        for policy in translated.iter().filter(|made| text(made, "/kind").ends_with("Policy")) {
            let name = text(policy, "/metadata/name");
            self.translated_names.push((text(policy, "/kind").to_owned(), name.to_owned(), at));
            made.extend(
                CompiledPolicy::new(policy, &mut diagnostics)
                    .map(|compiled| ((text(policy, "/kind"), name), compiled)),
            );
        }
        for binding in translated {
            let Some(kind) = text(binding, "/kind").strip_suffix("Binding") else { continue };
            if let Some(policy) = made.get_mut(&(kind, text(binding, "/spec/policyName"))) {
                policy.bind(binding, &mut diagnostics);
            }
        }
        // A well-formed GangPolicy must translate to well-formed policies. If it does not, the diagnostic
        // points at the whole document.
        let diagnostics = diagnostics.into_iter().map(|diagnostic| Diagnostic {
            pointer: String::new(),
            offset: None,
            ..diagnostic
        });
        let diagnostics = diagnostics.collect();
        self.report_all(at, diagnostics);
        self.translated.extend(made.into_values());
    }

    /// Processes an object that is not a policy.
    fn process_other_object(&mut self, at: usize) {
        let document = &self.documents[at];
        match document.role() {
            DocumentRole::ValidatingBinding | DocumentRole::MutatingBinding => {
                self.made.counts.bindings += 1;
                self.binding(at);
            }
            DocumentRole::Exception => {
                self.made.counts.exceptions += 1;
                self.version(at);
                self.exception(at);
            }
            DocumentRole::Test => self.version(at),
            DocumentRole::Foreign => {
                let message = format!(
                    "a {} is not evaluated by Portcullis: apply it to the API server",
                    document.kind()
                );
                self.report(at, Diagnostic::warning("/kind", message));
            }
            DocumentRole::Unknown => {
                let message = format!(
                    "there is no {} in {PORTCULLIS_GROUP}: it has {}",
                    document.kind(),
                    PORTCULLIS_KINDS.join(", ")
                );
                let meant = closest(document.kind(), PORTCULLIS_KINDS).map(str::to_owned);
                self.report(at, Diagnostic::error("/kind", message).suggest(meant));
            }
            DocumentRole::Param => self.param(at),
            DocumentRole::Validating | DocumentRole::Mutating | DocumentRole::GangPolicy => {}
        }
    }

    /// Checks the version of a Portcullis kind; there is only one.
    fn version(&mut self, at: usize) {
        let document = &self.documents[at];
        if document.version() != PORTCULLIS_VERSION {
            let message = format!("{PORTCULLIS_GROUP} has no version {:?}", document.version());
            let meant = Some(format!("{PORTCULLIS_GROUP}/{PORTCULLIS_VERSION}"));
            self.report(at, Diagnostic::error("/apiVersion", message).suggest(meant));
        }
    }

    fn binding(&mut self, at: usize) {
        let document = &self.documents[at];
        let role = document.role();
        let mut known = Vec::new();
        let cleaned = self.strict(at, &mut known);
        let is_validating = role == DocumentRole::ValidatingBinding;
        let checks = if is_validating {
            api_rules::validating_binding(&document.json)
        } else {
            api_rules::mutating_binding(&document.json)
        };
        self.add(at, &mut known, checks);
        let name = text(&document.json, "/spec/policyName");
        let (mine, other) = if is_validating {
            (&mut self.validating, &self.mutating)
        } else {
            (&mut self.mutating, &self.validating)
        };
        if let Some(policy) = mine.get_mut(name) {
            policy.bound = true;
            let mut found = Vec::new();
            if let Some(compiled) = &mut policy.compiled {
                compiled.bind(&cleaned, &mut found);
            }
            let has_params = policy.has_params;
            self.add(at, &mut known, found);
            self.reference(at, has_params);
        } else if !name.is_empty() {
            let kind = document.kind().trim_end_matches("Binding");
            let message = if other.contains_key(name) {
                format!("{name:?} is not a {kind}: use the other kind of binding")
            } else {
                format!("there is no {kind} {name:?} in these files")
            };
            let meant = closest(name, mine.keys().copied()).map(str::to_owned);
            if let Some(policy) = meant.as_deref().and_then(|meant| mine.get_mut(meant)) {
                // The binding counts for the suggested policy, so that one mistake gives one problem.
                policy.bound = true;
            }
            self.report(at, Diagnostic::error("/spec/policyName", message).suggest(meant));
        }
    }

    /// Checks the parameters of a binding.
    fn reference(&mut self, at: usize, has_params: bool) {
        let document = &self.documents[at];
        let reference = document.json.pointer("/spec/paramRef").filter(|reference| !reference.is_null());
        match (has_params, reference) {
            (true, None) => {
                let message =
                    "the policy has a paramKind but this binding has no paramRef: params is null".to_owned();
                self.report(at, Diagnostic::warning("/spec/paramRef", message));
            }
            (false, Some(_)) => {
                let message = "the policy has no paramKind: paramRef is ignored".to_owned();
                self.report(at, Diagnostic::warning("/spec/paramRef", message).at_key());
            }
            (true, Some(reference)) => {
                let name = text(reference, "/name");
                let policy = text(&document.json, "/spec/policyName");
                let policies = if document.role() == DocumentRole::ValidatingBinding {
                    &self.validating
                } else {
                    &self.mutating
                };
                let Some(kind) = policies
                    .get(policy)
                    .and_then(|known| self.documents[known.document].json.pointer("/spec/paramKind"))
                else {
                    return;
                };
                let (version, kind) = (text(kind, "/apiVersion"), text(kind, "/kind"));
                let none = BTreeSet::new();
                let names = self.objects.get(&(version, kind)).unwrap_or(&none);
                if !name.is_empty() && !names.contains(name) {
                    let then = match text(reference, "/parameterNotFoundAction") {
                        "Deny" => "every request is denied",
                        _ => "nothing is evaluated",
                    };
                    let message = format!("there is no {kind} {name:?} in these files, so {then}");
                    let meant = closest(name, names.iter().copied()).map(str::to_owned);
                    self.report(at, Diagnostic::warning("/spec/paramRef/name", message).suggest(meant));
                }
            }
            (false, None) => {}
        }
    }

    fn exception(&mut self, at: usize) {
        let document = &self.documents[at];
        match PolicyException::read(&document.json) {
            Ok(exception) => {
                let ending =
                    document.problem(&self.texts[document.file], Diagnostic::warning("/spec/expires", ""));
                self.made.exceptions.push((exception, ending));
            }
            Err(diagnostics) => self.report_all(at, diagnostics),
        }
        self.check_targets(at);
    }

    /// Checks that the policies and validations that an exception names exist.
    fn check_targets(&mut self, at: usize) {
        let check_targets = self.documents[at].json.pointer("/spec/policies").and_then(Json::as_array);
        for (index, target) in check_targets.into_iter().flatten().enumerate() {
            let place = format!("/spec/policies/{index}");
            let (name, positions) =
                (text(target, "/name"), target.get("validations").and_then(Json::as_array));
            if name.is_empty() {
                continue;
            }
            if !self.names.contains(name) {
                let meant = closest(name, self.names.iter().copied()).map(str::to_owned);
                let message = format!("there is no policy {name:?} in these files");
                self.report(at, Diagnostic::error(format!("{place}/name"), message).suggest(meant));
                continue;
            }
            let Some(positions) = positions else { continue };
            let Some(policy) = self.validating.get(name) else {
                let message = format!(
                    "{name:?} is not a ValidatingAdmissionPolicy, so an exception covers it as a whole: remove this field"
                );
                self.report(at, Diagnostic::error(format!("{place}/validations"), message).at_key());
                continue;
            };
            let count = count(&self.documents[policy.document].json, "validations");
            for (index, position) in positions.iter().enumerate() {
                let Some(position) = position.as_u64() else { continue };
                if usize::try_from(position).is_ok_and(|position| position < count) {
                    continue;
                }
                let message =
                    format!("{name:?} has no validation {position}: it has {count}, counted from 0");
                self.report(at, Diagnostic::error(format!("{place}/validations/{index}"), message));
            }
        }
    }

    fn param(&mut self, at: usize) {
        let document = &self.documents[at];
        if document.kind().is_empty() || document.api_version().is_empty() {
            for field in ["apiVersion", "kind"] {
                if text(&document.json, &format!("/{field}")).is_empty() {
                    let message = format!("this is not a Kubernetes object: the field {field:?} is required");
                    self.report(at, Diagnostic::error(format!("/{field}"), message));
                }
            }
        } else if self.param_kinds.contains(&(document.api_version(), document.kind())) {
            self.made.counts.params += 1;
            if document.name().is_empty() {
                self.report(
                    at,
                    Diagnostic::error("/metadata/name", "the field \"metadata.name\" is required"),
                );
            }
            if Schema::of(document.group(), document.version(), document.kind()).is_some() {
                self.strict(at, &mut Vec::new());
            }
        } else {
            let policies =
                ["ValidatingAdmissionPolicy", "MutatingAdmissionPolicy", "GangPolicy", "PolicyException"];
            let message = format!(
                "a {} is not a policy, and no policy takes parameters of this kind: it is ignored",
                document.kind()
            );
            let meant = closest(document.kind(), policies).map(str::to_owned);
            self.report(at, Diagnostic::warning("/kind", message).suggest(meant));
        }
    }

    fn finish(mut self) -> AssembledSet {
        let unbound: Vec<(usize, String)> = self
            .validating
            .iter()
            .chain(&self.mutating)
            .filter(|(name, policy)| !policy.bound && !name.is_empty())
            .map(|(name, policy)| {
                let kind = self.documents[policy.document].kind();
                (policy.document, format!("no {kind}Binding names {name:?}: it is never evaluated"))
            })
            .collect();
        for (at, message) in unbound {
            self.report(at, Diagnostic::warning("/metadata/name", message));
        }
        for (kind, name, at) in std::mem::take(&mut self.translated_names) {
            let others = if kind == "ValidatingAdmissionPolicy" { &self.validating } else { &self.mutating };
            if let Some(other) = others.get(name.as_str()) {
                let place = self.place(other.document);
                let message =
                    format!("it becomes a {kind} {name:?}, and there is one at {place}: choose another name");
                self.report(at, Diagnostic::error("/metadata/name", message));
            }
        }
        let mut params = ParamStore::default();
        for document in self.documents {
            if self.param_kinds.contains(&(document.api_version(), document.kind())) {
                params.add(document.json.clone());
            }
        }
        let (mut validating, mut mutating) = (Vec::new(), Vec::new());
        let policies = self.validating.into_values().chain(self.mutating.into_values());
        for compiled in policies.filter_map(|known| known.compiled).chain(self.translated) {
            match compiled {
                CompiledPolicy::Validating(policy) => validating.push(policy),
                CompiledPolicy::Mutating(policy) => mutating.push(policy),
            }
        }
        self.made.rules = CompiledPolicies::new(validating, mutating, params);
        self.made.policies.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
        self.made
    }
}
