//! The webhook alone, with no cluster, to try it out; tells a person how to reach it.

use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anstyle::{AnsiColor, Style};
use anyhow::Context;

use super::policies::Policies;
use super::signals::Stop;
use super::{ServeOptions, bind, reload, webhook_config};
use crate::certs::{
    Authority, CertificateError, CertificateFiles, LiveCertificate, Names, Presented, RENEWAL_CHECK,
    write_local,
};
use crate::telemetry::Metrics;
use crate::webhook::{self, WebhookDependencies, review_handler};

/// Runs the webhook with no cluster until it is asked to stop. Returns when it is drained.
///
/// # Errors
/// When an address is taken, a certificate cannot be made or read, or its files cannot be written.
pub(super) async fn run(options: ServeOptions, stop: Stop) -> anyhow::Result<()> {
    let listener = bind(options.bind, "--bind").await?;
    let admin_listener = bind(options.admin_bind, "--admin-bind").await?;
    let (address, admin_address) = (listener.local_addr()?, admin_listener.local_addr()?);

    let directory = local_directory(options.certs_dir.as_deref())?;
    let (source, first, trusted) = certificate(&options, &directory, address.ip())?;
    let sample = directory.join("sample-review.json");
    fs::write(&sample, sample_review()).with_context(|| format!("cannot write {}", sample.display()))?;

    let metrics = Arc::new(Metrics::new());
    let policies = Policies::given(&options, &metrics)?;
    let service = WebhookDependencies {
        review: review_handler(options.admission()),
        policies: policies.as_ref().map(Policies::desk),
        certificate: Arc::new(LiveCertificate::new(first)),
        metrics,
        clock: Arc::new(SystemTime::now),
        requirements: policies.iter().map(|policies| policies.requirement(false)).collect(),
    };
    greet(address, admin_address, &trusted, &sample);

    let (live, metrics) = (Arc::clone(&service.certificate), Arc::clone(&service.metrics));
    let fresh = async {
        match source {
            CertificateSource::Given(files) => reload(files, &live, &metrics).await,
            CertificateSource::Own(own) => own.keep_fresh(&live, &metrics).await,
        }
    };
    tokio::select! {
        report = webhook::run(listener, admin_listener, webhook_config(&options), service, stop.asked()) => {
            if report.connections_cut > 0 {
                tracing::warn!(connections = report.connections_cut, "connections were still open when the time to drain was over");
            }
        }
        () = fresh => {}
    }
    Ok(())
}

/// Where the certificate of this run comes from.
enum CertificateSource {
    Own(Own),
    Given(CertificateFiles),
}

/// An authority of this run.
struct Own {
    authority: Box<Authority>,
    names: Names,
    directory: PathBuf,
}

/// The source, the certificate to start with, and the file that a client must trust.
fn certificate(
    options: &ServeOptions,
    directory: &Path,
    bound: IpAddr,
) -> anyhow::Result<(CertificateSource, Presented, PathBuf)> {
    if let (Some(certificate), Some(key)) = (&options.tls_cert, &options.tls_key) {
        let mut files = CertificateFiles::new(certificate.clone(), key.clone());
        let first = files.poll()?.context("the first look at a certificate always finds something new")?;
        return Ok((CertificateSource::Given(files), first, certificate.clone()));
    }
    let now = SystemTime::now();
    let mut names = Names::loopback();
    names.dns.extend(options.dns_name.iter().cloned());
    if !bound.is_unspecified() && !names.addresses.contains(&bound) {
        names.addresses.push(bound);
    }
    let authority = Box::new(Authority::new(now)?);
    let leaf = authority.issue(&names, now)?;
    let files = write_local(directory, &authority, &leaf)?;
    let source = CertificateSource::Own(Own { authority, names, directory: directory.to_owned() });
    Ok((source, leaf.presented()?, files.authority))
}

impl Own {
    /// Renews the certificate when it is due, for ever.
    async fn keep_fresh(mut self, live: &LiveCertificate, metrics: &Metrics) {
        loop {
            tokio::time::sleep(RENEWAL_CHECK).await;
            super::swap(self.next(live, SystemTime::now()), live, metrics);
        }
    }

    fn next(
        &mut self,
        live: &LiveCertificate,
        now: SystemTime,
    ) -> Result<Option<Presented>, CertificateError> {
        if !live.validity().renewal_is_due(now) {
            return Ok(None);
        }
        if self.authority.validity().renewal_is_due(now) {
            *self.authority = Authority::new(now)?;
        }
        let leaf = self.authority.issue(&self.names, now)?;
        write_local(&self.directory, &self.authority, &leaf)?;
        leaf.presented().map(Some)
    }
}

/// `certs/local` in a checkout, else a new directory that only this user can read.
fn local_directory(asked: Option<&Path>) -> anyhow::Result<PathBuf> {
    let usable = |path: &Path| fs::create_dir_all(path).and_then(|()| tempfile_in(path));
    if let Some(asked) = asked {
        usable(asked).with_context(|| format!("cannot write to {} (--certs-dir)", asked.display()))?;
        return Ok(asked.to_owned());
    }
    let here = Path::new("certs/local");
    if Path::new("certs").is_dir() && usable(here).is_ok() {
        return Ok(here.to_owned());
    }
    let temporary = std::env::temp_dir().join(format!("portcullis-{}", std::process::id()));
    fs::DirBuilder::new()
        .mode(0o700)
        .create(&temporary)
        .with_context(|| format!("cannot make {}. Name a directory with --certs-dir", temporary.display()))?;
    Ok(temporary)
}

/// Whether a file can be made there.
fn tempfile_in(directory: &Path) -> std::io::Result<()> {
    let probe = directory.join(format!(".probe-{}", std::process::id()));
    fs::write(&probe, "")?;
    fs::remove_file(probe)
}

fn greet(address: SocketAddr, admin_address: SocketAddr, trusted: &Path, sample: &Path) {
    let (strong, command, plain) = (Style::new().bold(), AnsiColor::Cyan.on_default(), Style::new());
    let (web, admin) = (reachable(address), reachable(admin_address));
    let (trusted, sample) =
        (quoted(&trusted.display().to_string()), quoted(&format!("@{}", sample.display())));
    // Nobody need read it: `serve | head -1` goes on serving.
    let _ = writeln!(
        anstream::stdout(),
        "{strong}Portcullis, the webhook alone{strong:#}: reviews what you send it, and knows no cluster.

  reviews   https://{web}/mutate and /validate
  probes    http://{admin}/readyz?verbose and /metrics
  trust     {trusted}

Try it. This pod asks for a whole GPU and for a share of one, so it is denied:

  {command}curl -sS --cacert {trusted} -H 'content-type: application/json' --data-binary {sample} https://{web}/mutate{command:#}

{plain}Ctrl-C stops it.{plain:#}"
    );
}

/// An address to connect to: who listens everywhere listens on loopback, too.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// One word for a shell.
fn quoted(word: &str) -> String {
    let harmless = |character: char| character.is_ascii_alphanumeric() || "/._-@".contains(character);
    if !word.is_empty() && word.chars().all(harmless) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A review of a pod that contradicts itself.
fn sample_review() -> String {
    let review = serde_json::json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
            "requestResource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "model-1",
            "namespace": "default",
            "operation": "CREATE",
            "userInfo": {"username": "developer", "groups": ["system:authenticated"]},
            "object": {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": "model-1",
                    "namespace": "default",
                    "labels": {"kai.scheduler/podgroup": "app-with-models"},
                    "annotations": {"pod-group-name": "app-with-models", "gpu-memory": "8000"}
                },
                "spec": {
                    "containers": [{
                        "name": "model",
                        "image": "registry.example/model:1",
                        "resources": {"limits": {"nvidia.com/gpu": "1"}}
                    }]
                }
            },
            "oldObject": null,
            "dryRun": false,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"}
        }
    });
    format!("{review:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_shell() {
        let check = |word: &str, expected: &str| assert_eq!(quoted(word), expected);
        check("certs/local/ca.crt", "certs/local/ca.crt");
        check("/tmp/my certs/ca.crt", "'/tmp/my certs/ca.crt'");
        check("it's", r"'it'\''s'");
        check("$HOME", "'$HOME'");
        check("", "''");
    }

    #[test]
    fn an_address_that_means_everywhere_is_shown_as_loopback() {
        let check =
            |bound: &str, shown: &str| assert_eq!(reachable(bound.parse().unwrap()).to_string(), shown);
        check("0.0.0.0:8443", "127.0.0.1:8443");
        check("[::]:8443", "[::1]:8443");
        check("10.0.0.7:1", "10.0.0.7:1");
    }
}
