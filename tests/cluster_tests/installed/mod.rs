//! Portcullis installed by its manifests on a real control plane: what an administrator sees, and what
//! happens while no replica runs.

mod away;
mod cert_manager;
mod certificates;
mod doctor;
mod permissions;
mod policies;
mod unregistered;

use portcullis_test_cluster::{Cluster, Node, Options, Portcullis, ProgramOptions, Version, available};

/// A new cluster with a node for whole cards and one with a shared card; `None` where no cluster can run.
fn cluster() -> Option<Cluster> {
    if !available(Version::default()) {
        return None;
    }
    let cluster = Cluster::start(&Options::default()).unwrap();
    cluster.create_nodes(&[Node::whole("gpu-1", 8), Node::shared("shared-1", 1, 32_768)]).unwrap();
    Some(cluster)
}

/// Two replicas without a shutdown delay, because no real Service has to drain.
fn options() -> ProgramOptions {
    let mut options = ProgramOptions::new(env!("CARGO_BIN_EXE_portcullis"));
    options.flags.push("--shutdown-delay=0s".to_owned());
    options
}

fn start<'a>(cluster: &'a Cluster, options: ProgramOptions) -> Portcullis<'a> {
    Portcullis::start(cluster, options).unwrap()
}

/// A KAI PodGroup with `minMember: wanted`, and `members` pods of it.
fn gang(name: &str, wanted: usize, members: usize) -> String {
    let group = format!(
        "apiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup\nmetadata: {{name: {name}}}\nspec: {{minMember: {wanted}}}\n"
    );
    (1..=members).fold(group, |text, number| format!("{text}---\n{}", member(name, number, "")))
}

/// The pod with this number in a gang, with more annotations such as `, gpu-memory: \"4000\"`.
fn member(gang: &str, number: usize, annotations: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {gang}-{number}\n  labels: {{kai.scheduler/podgroup: {gang}}}\n  \
         annotations: {{pod-group-name: {gang}{annotations}}}\nspec:\n  containers: [{{name: main, image: example.com/nothing, resources: {{requests: {{cpu: 10m}}}}}}]\n"
    )
}
