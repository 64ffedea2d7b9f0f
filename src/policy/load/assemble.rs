//! Objects to policies with their bindings, params and exceptions. What refers to what, and what does not: names given twice, bindings of
//! policies that are not there, policies that nobody binds, objects that nobody asks for.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_core::model::closest;
use serde::Deserialize;
use serde_json::Value as Json;

use super::document::{Document, OUR_KINDS, OUR_VERSION, OURS, Role, at};
use super::text::Text;
use super::typed::{self, Environments};
use super::{Counts, Problem, admission, strict};
use crate::exception::Exception;
use crate::fault::{Fault, Severity};
use crate::gang;
use crate::rules::{Mutating, Params, Rules, Validating};
use crate::schema::{Schema, served};
use crate::set::Listed;
use crate::spec::ResourceRule;

/// What objects are together.
#[derive(Debug, Default)]
pub(super) struct Assembled {
    pub(super) problems: Vec<Problem>,
    pub(super) counts: Counts,
    pub(super) policies: Vec<Listed>,
    pub(super) rules: Rules,
    /// With a problem at the place where each says when it ends.
    pub(super) exceptions: Vec<(Exception, Problem)>,
}

/// A policy whose bindings are looked for.
struct Known {
    document: usize,
    /// As it is evaluated; none when something is wrong with it.
    compiled: Option<Compiled>,
    has_params: bool,
    bound: bool,
}

/// A policy that can be evaluated.
enum Compiled {
    Validating(Validating),
    Mutating(Mutating),
}

impl Compiled {
    fn new(document: &Json, faults: &mut Vec<Fault>) -> Option<Self> {
        match text(document, "/kind") {
            "ValidatingAdmissionPolicy" => Validating::compile(document, faults).map(Self::Validating),
            _ => Mutating::compile(document, faults).map(Self::Mutating),
        }
    }

    fn bind(&mut self, binding: &Json, faults: &mut Vec<Fault>) {
        match self {
            Self::Validating(policy) => policy.bind(binding, faults),
            Self::Mutating(policy) => policy.bind(binding, faults),
        }
    }
}

struct Assembler<'a, 't> {
    documents: &'a [Document],
    texts: &'a [Text<'t>],
    made: Assembled,
    environments: Environments,
    validating: BTreeMap<&'a str, Known>,
    mutating: BTreeMap<&'a str, Known>,
    /// Kinds that policies take parameters from.
    param_kinds: BTreeSet<(&'a str, &'a str)>,
    /// Names of objects by version and kind: what bindings may hand to policies.
    objects: BTreeMap<(&'a str, &'a str), BTreeSet<&'a str>>,
    /// Policies of all kinds, for exceptions.
    names: BTreeSet<&'a str>,
    /// What policies of ours were made into.
    lowered: Vec<Compiled>,
    /// Kinds and names of that, with the document that each comes from.
    names_made: Vec<(String, String, usize)>,
}

pub(super) fn assemble(documents: &[Document], texts: &[Text<'_>]) -> Assembled {
    let mut assembler = Assembler {
        documents,
        texts,
        made: Assembled::default(),
        environments: Environments::default(),
        validating: BTreeMap::new(),
        mutating: BTreeMap::new(),
        param_kinds: BTreeSet::new(),
        objects: BTreeMap::new(),
        names: BTreeSet::new(),
        lowered: Vec::new(),
        names_made: Vec::new(),
    };
    assembler.duplicates();
    for document in documents.iter().filter(|document| document.role() == Role::Param) {
        let kind = (document.api_version(), document.kind());
        assembler.objects.entry(kind).or_default().insert(document.name());
    }
    for at in 0..documents.len() {
        assembler.policy(at);
    }
    for at in 0..documents.len() {
        assembler.others(at);
    }
    assembler.finish()
}

/// The API server's words for a list in a `spec`.
fn count(document: &Json, list: &str) -> usize {
    document.pointer(&format!("/spec/{list}")).and_then(Json::as_array).map_or(0, Vec::len)
}

fn text<'j>(json: &'j Json, pointer: &str) -> &'j str {
    at(json, pointer).and_then(Json::as_str).unwrap_or_default()
}

impl<'a> Assembler<'a, '_> {
    fn tell(&mut self, at: usize, fault: Fault) {
        let document = &self.documents[at];
        self.made.problems.push(document.problem(&self.texts[document.file], fault));
    }

    fn tell_all(&mut self, at: usize, faults: Vec<Fault>) {
        for fault in faults {
            self.tell(at, fault);
        }
    }

    /// `policies/gpu.yaml:14`
    fn place(&self, at: usize) -> String {
        let document = &self.documents[at];
        let text = &self.texts[document.file];
        format!("{}:{}", text.name, text.position(document.start().start).0)
    }

    fn duplicates(&mut self) {
        let mut known: BTreeMap<(Role, &str, &str, &str, &str), usize> = BTreeMap::new();
        for (at, document) in self.documents.iter().enumerate() {
            let role = document.role();
            if document.name().is_empty() || role == Role::Test {
                continue;
            }
            let version = if role == Role::Param { document.api_version() } else { "" };
            let namespace = if role == Role::Param { Params::namespace_of(&document.json) } else { "" };
            let key = (role, version, document.kind(), namespace, document.name());
            if let Some(first) = known.get(&key) {
                let message = format!("there is another {} at {}", document.about(), self.place(*first));
                self.tell(at, Fault::error("/metadata/name", message));
            } else {
                known.insert(key, at);
            }
        }
    }

    /// Checks an object against its kind, and gives what is left to be read.
    fn strict(&mut self, at: usize, known: &mut Vec<Fault>) -> Json {
        let document = &self.documents[at];
        let Some(schema) = Schema::of(document.group(), document.version(), document.kind()) else {
            let versions: BTreeSet<&str> = served()
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
            self.tell(at, Fault::error("/apiVersion", message).suggest(best));
            return document.json.clone();
        };
        let faults = strict::check(&document.json, schema);
        self.add(at, known, faults);
        strict::clean(&document.json, schema)
    }

    /// Adds what a later look has found, but nothing twice: neither at a place where something is wrong already, nor within a value that is
    /// of the wrong type.
    fn add(&mut self, at: usize, known: &mut Vec<Fault>, more: Vec<Fault>) {
        let before = known.len();
        for fault in more {
            let told = known[..before].iter().filter(|one| one.severity == Severity::Error).any(|one| {
                let same = one.pointer == fault.pointer && one.offset.is_none() && fault.offset.is_none();
                let within =
                    fault.pointer.strip_prefix(&one.pointer).is_some_and(|rest| rest.starts_with('/'));
                same || within && (one.message == fault.message || one.message.starts_with("this must be"))
            });
            let again =
                known[..before].iter().any(|one| one.message == fault.message && one.offset.is_none());
            if !told && (!again || !fault.message.starts_with("matchConstraints is required")) {
                self.tell(at, fault.clone());
                known.push(fault);
            }
        }
    }

    fn policy(&mut self, at: usize) {
        let document = &self.documents[at];
        let role = document.role();
        match role {
            Role::Validating | Role::Mutating => {
                self.made.counts.policies += 1;
                self.made.counts.rules += ["validations", "auditAnnotations", "mutations"]
                    .iter()
                    .map(|list| count(&document.json, list))
                    .sum::<usize>();
                self.admission_policy(at, role);
            }
            Role::GangPolicy => {
                self.made.counts.policies += 1;
                self.names.insert(document.name());
                self.version(at);
                let mut faults = Vec::new();
                let lowered = gang::lower(&document.json, &mut faults).unwrap_or_default();
                self.tell_all(at, faults);
                self.written(at, &lowered);
                self.lowered(at, &lowered);
            }
            _ => {}
        }
    }

    /// Notes a policy for who asks what there is, with what it is evaluated as.
    fn written(&mut self, at: usize, evaluated: &[Json]) {
        let document = &self.documents[at];
        let text_of = &self.texts[document.file];
        let selects = |kind: &str| {
            let policies = evaluated.iter().filter(|one| text(one, "/kind") == kind);
            let rules =
                policies.filter_map(|one| one.pointer("/spec/matchConstraints/resourceRules")?.as_array());
            rules.flatten().filter_map(|rule| ResourceRule::deserialize(rule).ok()).collect()
        };
        self.made.policies.push(Listed {
            judges: selects("ValidatingAdmissionPolicy"),
            changes: selects("MutatingAdmissionPolicy"),
            kind: document.kind().to_owned(),
            name: document.name().to_owned(),
            file: text_of.name.to_owned(),
            line: text_of.position(document.start().start).0,
        });
    }

    fn admission_policy(&mut self, at: usize, role: Role) {
        let document = &self.documents[at];
        self.names.insert(document.name());
        let before = self.made.problems.len();
        let mut known = Vec::new();
        let cleaned = self.strict(at, &mut known);
        self.written(at, std::slice::from_ref(&cleaned));
        let checks = if role == Role::Validating {
            admission::validating(&document.json)
        } else {
            admission::mutating(&document.json)
        };
        self.add(at, &mut known, checks);
        let mut found = Vec::new();
        let compiled = Compiled::new(&cleaned, &mut found);
        self.add(at, &mut known, found);
        let typed = typed::check(&cleaned, &known, &mut self.environments);
        self.add(at, &mut known, typed);
        let wrong = self.made.problems[before..].iter().any(|problem| problem.severity == Severity::Error);
        let kind = document.json.pointer("/spec/paramKind");
        if let Some(kind) = kind {
            self.param_kinds.insert((text(kind, "/apiVersion"), text(kind, "/kind")));
        }
        let policy = Known {
            document: at,
            compiled: compiled.filter(|_| !wrong),
            has_params: kind.is_some_and(|kind| !kind.is_null()),
            bound: false,
        };
        let policies = if role == Role::Validating { &mut self.validating } else { &mut self.mutating };
        policies.entry(document.name()).or_insert(policy);
    }

    /// Compiles what a policy of ours was made into, with its bindings.
    fn lowered(&mut self, at: usize, lowered: &[Json]) {
        let mut faults = Vec::new();
        let mut made: BTreeMap<(&str, &str), Compiled> = BTreeMap::new();
        for policy in lowered.iter().filter(|made| text(made, "/kind").ends_with("Policy")) {
            let name = text(policy, "/metadata/name");
            self.names_made.push((text(policy, "/kind").to_owned(), name.to_owned(), at));
            made.extend(
                Compiled::new(policy, &mut faults).map(|compiled| ((text(policy, "/kind"), name), compiled)),
            );
        }
        for binding in lowered {
            let Some(kind) = text(binding, "/kind").strip_suffix("Binding") else { continue };
            if let Some(policy) = made.get_mut(&(kind, text(binding, "/spec/policyName"))) {
                policy.bind(binding, &mut faults);
            }
        }
        // What is made of a policy that is well formed must be so, too: a fault is shown at the policy as a whole.
        let faults = faults.into_iter().map(|fault| Fault { pointer: String::new(), offset: None, ..fault });
        let faults = faults.collect();
        self.tell_all(at, faults);
        self.lowered.extend(made.into_values());
    }

    /// Everything that is no policy.
    fn others(&mut self, at: usize) {
        let document = &self.documents[at];
        match document.role() {
            Role::ValidatingBinding | Role::MutatingBinding => {
                self.made.counts.bindings += 1;
                self.binding(at);
            }
            Role::Exception => {
                self.made.counts.exceptions += 1;
                self.version(at);
                self.exception(at);
            }
            Role::Test => self.version(at),
            Role::Foreign => {
                let message =
                    format!("a {} is not evaluated here: it is for the API server", document.kind());
                self.tell(at, Fault::warning("/kind", message));
            }
            Role::Unknown => {
                let message =
                    format!("there is no {} in {OURS}: it has {}", document.kind(), OUR_KINDS.join(", "));
                let meant = closest(document.kind(), OUR_KINDS.into_iter()).map(str::to_owned);
                self.tell(at, Fault::error("/kind", message).suggest(meant));
            }
            Role::Param => self.param(at),
            Role::Validating | Role::Mutating | Role::GangPolicy => {}
        }
    }

    /// Our own kinds have one version.
    fn version(&mut self, at: usize) {
        let document = &self.documents[at];
        if document.version() != OUR_VERSION {
            let message = format!("{OURS} has no version {:?}", document.version());
            let meant = Some(format!("{OURS}/{OUR_VERSION}"));
            self.tell(at, Fault::error("/apiVersion", message).suggest(meant));
        }
    }

    fn binding(&mut self, at: usize) {
        let document = &self.documents[at];
        let role = document.role();
        let mut known = Vec::new();
        let cleaned = self.strict(at, &mut known);
        let is_validating = role == Role::ValidatingBinding;
        let checks = if is_validating {
            admission::validating_binding(&document.json)
        } else {
            admission::mutating_binding(&document.json)
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
                format!("{name:?} is no {kind}: its bindings are of the other kind")
            } else {
                format!("there is no {kind} {name:?} in these files")
            };
            let meant = closest(name, mine.keys().copied()).map(str::to_owned);
            if let Some(policy) = meant.as_deref().and_then(|meant| mine.get_mut(meant)) {
                // One mistake is told once: as it is meant, it is bound.
                policy.bound = true;
            }
            self.tell(at, Fault::error("/spec/policyName", message).suggest(meant));
        }
    }

    /// Whether the parameters of a binding can be there.
    fn reference(&mut self, at: usize, has_params: bool) {
        let document = &self.documents[at];
        let reference = document.json.pointer("/spec/paramRef").filter(|reference| !reference.is_null());
        match (has_params, reference) {
            (true, None) => {
                let message =
                    "the policy has a paramKind and this binding no paramRef: params is null".to_owned();
                self.tell(at, Fault::warning("/spec/paramRef", message));
            }
            (false, Some(_)) => {
                let message = "the policy has no paramKind: this is passed over".to_owned();
                self.tell(at, Fault::warning("/spec/paramRef", message).at_key());
            }
            (true, Some(reference)) => {
                let name = text(reference, "/name");
                let policy = text(&document.json, "/spec/policyName");
                let policies = if document.role() == Role::ValidatingBinding {
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
                    self.tell(at, Fault::warning("/spec/paramRef/name", message).suggest(meant));
                }
            }
            (false, None) => {}
        }
    }

    fn exception(&mut self, at: usize) {
        let document = &self.documents[at];
        match Exception::read(&document.json) {
            Ok(exception) => {
                let ending =
                    document.problem(&self.texts[document.file], Fault::warning("/spec/expires", ""));
                self.made.exceptions.push((exception, ending));
            }
            Err(faults) => self.tell_all(at, faults),
        }
        self.targets(at);
    }

    /// Whether the policies and validations that an exception names are there.
    fn targets(&mut self, at: usize) {
        let targets = self.documents[at].json.pointer("/spec/policies").and_then(Json::as_array);
        for (index, target) in targets.into_iter().flatten().enumerate() {
            let place = format!("/spec/policies/{index}");
            let (name, positions) =
                (text(target, "/name"), target.get("validations").and_then(Json::as_array));
            if name.is_empty() {
                continue;
            }
            if !self.names.contains(name) {
                let meant = closest(name, self.names.iter().copied()).map(str::to_owned);
                let message = format!("there is no policy {name:?} in these files");
                self.tell(at, Fault::error(format!("{place}/name"), message).suggest(meant));
                continue;
            }
            let Some(positions) = positions else { continue };
            let Some(policy) = self.validating.get(name) else {
                let message = format!(
                    "{name:?} is no ValidatingAdmissionPolicy, and holds or does not as a whole: leave this out"
                );
                self.tell(at, Fault::error(format!("{place}/validations"), message).at_key());
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
                self.tell(at, Fault::error(format!("{place}/validations/{index}"), message));
            }
        }
    }

    fn param(&mut self, at: usize) {
        let document = &self.documents[at];
        if document.kind().is_empty() || document.api_version().is_empty() {
            for field in ["apiVersion", "kind"] {
                if text(&document.json, &format!("/{field}")).is_empty() {
                    let message = format!("this is no Kubernetes object: the field {field:?} is required");
                    self.tell(at, Fault::error(format!("/{field}"), message));
                }
            }
        } else if self.param_kinds.contains(&(document.api_version(), document.kind())) {
            self.made.counts.params += 1;
            if document.name().is_empty() {
                self.tell(at, Fault::error("/metadata/name", "the field \"metadata.name\" is required"));
            }
            if Schema::of(document.group(), document.version(), document.kind()).is_some() {
                self.strict(at, &mut Vec::new());
            }
        } else {
            let policies =
                ["ValidatingAdmissionPolicy", "MutatingAdmissionPolicy", "GangPolicy", "PolicyException"];
            let message = format!(
                "a {} is no policy, and no policy takes its parameters from this kind: it is left out",
                document.kind()
            );
            let meant = closest(document.kind(), policies.into_iter()).map(str::to_owned);
            self.tell(at, Fault::warning("/kind", message).suggest(meant));
        }
    }

    fn finish(mut self) -> Assembled {
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
            self.tell(at, Fault::warning("/metadata/name", message));
        }
        for (kind, name, at) in std::mem::take(&mut self.names_made) {
            let others = if kind == "ValidatingAdmissionPolicy" { &self.validating } else { &self.mutating };
            if let Some(other) = others.get(name.as_str()) {
                let place = self.place(other.document);
                let message =
                    format!("it becomes a {kind} {name:?}, and there is one at {place}: take another name");
                self.tell(at, Fault::error("/metadata/name", message));
            }
        }
        let mut params = Params::default();
        for document in self.documents {
            if self.param_kinds.contains(&(document.api_version(), document.kind())) {
                params.add(document.json.clone());
            }
        }
        let (mut validating, mut mutating) = (Vec::new(), Vec::new());
        let policies = self.validating.into_values().chain(self.mutating.into_values());
        for compiled in policies.filter_map(|known| known.compiled).chain(self.lowered) {
            match compiled {
                Compiled::Validating(policy) => validating.push(policy),
                Compiled::Mutating(policy) => mutating.push(policy),
            }
        }
        self.made.rules = Rules::new(validating, mutating, params);
        self.made.policies.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
        self.made
    }
}
