//! `serve` in a cluster: the webhook on every replica, the engine beside it on the leader.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use arc_swap::ArcSwap;
use portcullis_core::admission::KnownClasses;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::certificates::{CertificateController, webhook_configurations};
use super::policies::{PolicyRuntime, reload_events};
use super::signals::StopSignal;
use super::{ServeOptions, bind, open_certificate_files, reload_certificate_files, webhook_config};
use crate::certs::{
    Authority, CertificateFiles, CertificateNames, LiveCertificate, ServerCertificate, Validity,
};
use crate::cluster::{self, Client};
use crate::telemetry::Metrics;
use crate::webhook::{self, ReadinessCheck, WebhookDependencies, review_handler_with_facts};

/// How long a replica stays unready while the PriorityClasses and RuntimeClasses are unknown. After that it
/// answers without them: a missing warning is better than a missing webhook.
const CLASSES_TIMEOUT: Duration = Duration::from_secs(15);

/// A replica in a cluster.
struct ServingReplica {
    options: ServeOptions,
    client: Client,
    metrics: Arc<Metrics>,
    facts: Arc<ArcSwap<KnownClasses>>,
    policies: Option<Arc<PolicyRuntime>>,
    certificate: Arc<LiveCertificate>,
}

pub(super) async fn run(options: ServeOptions, stop: StopSignal) -> anyhow::Result<()> {
    let listener = bind(options.bind, "--bind").await?;
    let admin_listener = bind(options.admin_bind, "--admin-bind").await?;
    let client = Client::infer().await.context("`portcullis serve --standalone` runs without a cluster")?;
    let metrics = Arc::new(Metrics::new());
    let policies = PolicyRuntime::start_if_configured(&options.policies, &options.shadow_policies, &metrics)?;
    let (files, first) = match open_certificate_files(&options)? {
        Some((files, first)) => (Some(files), first),
        None => (None, placeholder_certificate()?),
    };
    let replica = ServingReplica {
        options,
        client,
        metrics,
        facts: Arc::new(ArcSwap::from_pointee(KnownClasses::default())),
        policies,
        certificate: Arc::new(LiveCertificate::new(first)),
    };
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        server = replica.client.server(),
        namespace = replica.options.namespace,
        name = replica.options.name,
        reviews = %listener.local_addr()?,
        admin = %admin_listener.local_addr()?,
        certificate = if files.is_some() { "given files" } else { "own authority" },
        "starting"
    );
    let (engine_failed, engine_failure) = oneshot::channel();
    let shutdown = async {
        let engine_failure = async {
            if engine_failure.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = stop.clone().received() => {}
            () = engine_failure => {}
        }
    };
    let config = webhook_config(&replica.options);
    let serve_webhook =
        webhook::run(listener, admin_listener, config, replica.webhook_dependencies(), shutdown);
    tokio::select! {
        // The end of one stops the other, each with its own drain time.
        (_, result) = async { tokio::join!(serve_webhook, replica.run_engine(stop.clone(), engine_failed)) } => {
            result.context("the engine has stopped")
        }
        () = replica.update_certificate(files) => Ok(()),
        () = replica.report_reloads() => Ok(()),
    }
}

impl ServingReplica {
    fn webhook_dependencies(&self) -> WebhookDependencies {
        let policy_check = self.policies.iter().map(|policies| policies.readiness_check(true));
        WebhookDependencies {
            review: review_handler_with_facts(self.options.admission(), Arc::clone(&self.facts)),
            policies: self.policies.as_ref().map(PolicyRuntime::endpoints),
            certificate: Arc::clone(&self.certificate),
            metrics: Arc::clone(&self.metrics),
            clock: Arc::new(SystemTime::now),
            readiness_checks: std::iter::once(classes_check(&self.facts)).chain(policy_check).collect(),
        }
    }

    /// Runs the watches, the election and, while this replica leads, the engine.
    async fn run_engine(&self, stop: StopSignal, failed: oneshot::Sender<()>) -> anyhow::Result<()> {
        let options = cluster::ClusterOptions {
            identity: cluster::identity(&self.options.name),
            engine: self.options.engine.settings(),
            policy_data: self.policies.as_ref().map(PolicyRuntime::cluster_data_subscriber),
            ..cluster::ClusterOptions::new(&self.options.namespace)
        };
        let (facts, metrics) = (Arc::clone(&self.facts), self.metrics.cluster().clone());
        // After the stop signal the replica releases its lease at once. Another replica leads while this one
        // still serves.
        let result = cluster::run(self.client.clone(), options, facts, metrics, stop.received()).await;
        if result.is_err() {
            let _ = failed.send(());
        }
        Ok(result?)
    }

    /// Keeps the served certificate current: from the given files, or from the shared Secret. Never returns.
    async fn update_certificate(&self, files: Option<CertificateFiles>) {
        if let Some(files) = files {
            return reload_certificate_files(files, &self.certificate, &self.metrics).await;
        }
        CertificateController::new(
            self.client.clone(),
            &self.options,
            certificate_names(&self.options),
            webhook_configurations(self.policies.is_some()),
            Arc::clone(&self.certificate),
            Arc::clone(&self.metrics),
        )
        .run()
        .await;
    }

    /// Reports policy reloads as events. Never returns.
    async fn report_reloads(&self) {
        let Some(policies) = &self.policies else { return std::future::pending().await };
        let (name, namespace) = (&self.options.name, &self.options.namespace);
        reload_events::run(self.client.clone(), name, namespace, self.metrics.cluster().clone(), policies)
            .await;
    }
}

/// The names in the certificate: those of the Service for the API server, and loopback for people.
fn certificate_names(options: &ServeOptions) -> CertificateNames {
    let mut names =
        CertificateNames::of_service("portcullis", &options.namespace).union(&CertificateNames::loopback());
    names.dns.extend(options.dns_name.iter().cloned());
    names
}

/// The certificate until the Secret has been read. No client trusts it, and its validity fails the readiness
/// check.
fn placeholder_certificate() -> anyhow::Result<ServerCertificate> {
    let now = SystemTime::now();
    let leaf = Authority::new(now)?.issue(&CertificateNames::loopback(), now)?;
    let never = Validity { not_before: SystemTime::UNIX_EPOCH, not_after: SystemTime::UNIX_EPOCH };
    Ok(ServerCertificate { validity: never, ..leaf.server_certificate()? })
}

/// A check that passes once the classes of the cluster are known, or after [`CLASSES_TIMEOUT`].
fn classes_check(facts: &Arc<ArcSwap<KnownClasses>>) -> ReadinessCheck {
    let (facts, started) = (Arc::clone(facts), Instant::now());
    ReadinessCheck::new("classes", move || {
        let facts = facts.load();
        let known = facts.priority_classes.is_some() && facts.runtime_classes.is_some();
        if known || started.elapsed() > CLASSES_TIMEOUT {
            Ok(())
        } else {
            Err("the PriorityClasses and RuntimeClasses are not listed yet")
        }
    })
}
