//! In a cluster: the webhook on every replica, the engine beside it on the one that leads.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use arc_swap::ArcSwap;
use portcullis_core::admission::KnownClasses;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::keeper::{Keeper, configurations};
use super::policies::{Policies, herald};
use super::signals::Stop;
use super::{ServeOptions, bind, reload, webhook_config};
use crate::certs::{Authority, CertificateFiles, LiveCertificate, Names, Presented, Validity};
use crate::cluster::{self, Client};
use crate::telemetry::Metrics;
use crate::webhook::{self, ReadinessCheck, WebhookDependencies, review_handler_with_facts};

/// How long a replica that does not know the cluster's classes yet keeps out of the way. After that it answers without
/// them: a warning less is better than a webhook less.
const FACTS_PATIENCE: Duration = Duration::from_secs(15);

pub(super) async fn run(options: ServeOptions, stop: Stop) -> anyhow::Result<()> {
    let listener = bind(options.bind, "--bind").await?;
    let admin_listener = bind(options.admin_bind, "--admin-bind").await?;
    let client = Client::infer().await.context("`portcullis serve --standalone` runs without a cluster")?;
    let metrics = Arc::new(Metrics::new());
    let facts = Arc::new(ArcSwap::from_pointee(KnownClasses::default()));

    let policies = Policies::given(&options, &metrics)?;

    let files = match (&options.tls_cert, &options.tls_key) {
        (Some(certificate), Some(key)) => {
            let mut files = CertificateFiles::new(certificate.clone(), key.clone());
            let first =
                files.poll()?.context("the first look at a certificate always finds something new")?;
            Some((files, first))
        }
        _ => None,
    };
    let (files, first) = match files {
        Some((files, first)) => (Some(files), first),
        None => (None, nobody()?),
    };
    let live = Arc::new(LiveCertificate::new(first));
    let service = WebhookDependencies {
        review: review_handler_with_facts(options.admission(), Arc::clone(&facts)),
        policies: policies.as_ref().map(Policies::desk),
        certificate: Arc::clone(&live),
        metrics: Arc::clone(&metrics),
        clock: Arc::new(SystemTime::now),
        requirements: std::iter::once(classes_known(&facts))
            .chain(policies.iter().map(|policies| policies.requirement(true)))
            .collect(),
    };
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        server = client.server(),
        namespace = options.namespace,
        name = options.name,
        reviews = %listener.local_addr()?,
        admin = %admin_listener.local_addr()?,
        certificate = if files.is_some() { "given files" } else { "own authority" },
        "starting"
    );

    let certificates = async {
        match files {
            Some(files) => reload(files, &live, &metrics).await,
            None => {
                let (namespace, names) = (options.namespace.clone(), names(&options));
                let (live, metrics) = (Arc::clone(&live), Arc::clone(&metrics));
                let settling = options.authority_settling;
                let kept = configurations(policies.is_some());
                Keeper::new(client.clone(), namespace, names, settling, &options.name, live, metrics)
                    .keeping(kept)
                    .run()
                    .await;
            }
        }
    };
    let (failed, failure) = oneshot::channel();
    let engine = async {
        let edge = cluster::Options {
            identity: cluster::identity(&options.name),
            engine: options.engine.settings(),
            audience: policies.as_ref().map(Policies::audience),
            ..cluster::Options::new(&options.namespace)
        };
        let (facts, metrics) = (Arc::clone(&facts), metrics.cluster().clone());
        // Told to stop, it gives its lease back at once, so that another replica leads while this one still serves.
        let outcome = cluster::run(client.clone(), edge, facts, metrics, stop.clone().asked()).await;
        if outcome.is_err() {
            let _ = failed.send(());
        }
        outcome
    };
    let shutdown = async {
        let failure = async {
            if failure.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = stop.clone().asked() => {}
            () = failure => {}
        }
    };
    let telling = async {
        match &policies {
            Some(policies) => {
                herald::run(client.clone(), &options, metrics.cluster().clone(), policies).await;
            }
            None => std::future::pending().await,
        }
    };
    let serving = webhook::run(listener, admin_listener, webhook_config(&options), service, shutdown);
    tokio::select! {
        // What stops the one stops the other, each in its own time.
        (_, outcome) = async { tokio::join!(serving, engine) } => outcome.context("the engine has stopped"),
        () = certificates => Ok(()),
        () = telling => Ok(()),
    }
}

/// The names the API server may call us by: the Service, and where a person tries it out.
fn names(options: &ServeOptions) -> Names {
    let mut names = Names::of_service("portcullis", &options.namespace).union(&Names::loopback());
    names.dns.extend(options.dns_name.iter().cloned());
    names
}

/// What is presented until the Secret was read: a certificate that nobody trusts, and whose dates say so to the check of
/// readiness.
fn nobody() -> anyhow::Result<Presented> {
    let now = SystemTime::now();
    let leaf = Authority::new(now)?.issue(&Names::loopback(), now)?;
    let never = Validity { not_before: SystemTime::UNIX_EPOCH, not_after: SystemTime::UNIX_EPOCH };
    Ok(Presented { validity: never, ..leaf.presented()? })
}

/// Ready once the classes of the cluster are known, or cannot be had.
fn classes_known(facts: &Arc<ArcSwap<KnownClasses>>) -> ReadinessCheck {
    let (facts, since) = (Arc::clone(facts), Instant::now());
    ReadinessCheck::new("classes", move || {
        let facts = facts.load();
        let known = facts.priority_classes.is_some() && facts.runtime_classes.is_some();
        if known || since.elapsed() > FACTS_PATIENCE {
            Ok(())
        } else {
            Err("PriorityClasses and RuntimeClasses were not listed yet")
        }
    })
}
