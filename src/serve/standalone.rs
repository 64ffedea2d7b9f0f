//! `serve --standalone`: the webhook alone, without a cluster. It prints how to reach it.

use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anstyle::{AnsiColor, Style};
use anyhow::Context;

use super::policies::PolicyRuntime;
use super::signals::StopSignal;
use super::{
    ServeOptions, bind, open_certificate_files, reload_certificate_files, replace_certificate, webhook_config,
};
use crate::certs::{
    Authority, CertificateError, CertificateFiles, CertificateNames, LiveCertificate, RENEWAL_CHECK_INTERVAL,
    ServerCertificate, write_local,
};
use crate::telemetry::Metrics;
use crate::webhook::{self, WebhookDependencies, review_handler};

/// Runs the webhook without a cluster until the stop signal. It returns when all requests are drained.
///
/// # Errors
/// If an address is in use, a certificate cannot be created or read, or its files cannot be written.
pub(super) async fn run(options: ServeOptions, stop: StopSignal) -> anyhow::Result<()> {
    let listener = bind(options.bind, "--bind").await?;
    let admin_listener = bind(options.admin_bind, "--admin-bind").await?;
    let (address, admin_address) = (listener.local_addr()?, admin_listener.local_addr()?);

    let directory = certificate_directory(options.certs_dir.as_deref())?;
    let (source, first, ca_file) = first_certificate(&options, &directory, address.ip())?;
    let sample = directory.join("sample-review.json");
    fs::write(&sample, sample_review()).with_context(|| format!("cannot write {}", sample.display()))?;

    let metrics = Arc::new(Metrics::new());
    let policies = PolicyRuntime::start_if_configured(&options.policies, &options.shadow_policies, &metrics)?;
    let dependencies = WebhookDependencies {
        review: review_handler(options.admission()),
        policies: policies.as_ref().map(PolicyRuntime::endpoints),
        certificate: Arc::new(LiveCertificate::new(first)),
        metrics,
        clock: Arc::new(SystemTime::now),
        readiness_checks: policies.iter().map(|policies| policies.readiness_check(false)).collect(),
    };
    print_welcome(address, admin_address, &ca_file, &sample);

    let (live, metrics) = (Arc::clone(&dependencies.certificate), Arc::clone(&dependencies.metrics));
    let renew = async {
        match source {
            CertificateSource::Files(files) => reload_certificate_files(files, &live, &metrics).await,
            CertificateSource::Local(local) => local.renew_when_due(&live, &metrics).await,
        }
    };
    let config = webhook_config(&options);
    tokio::select! {
        report = webhook::run(listener, admin_listener, config, dependencies, stop.received()) => {
            if report.connections_cut > 0 {
                tracing::warn!(connections = report.connections_cut, "connections cut after the drain timeout");
            }
        }
        () = renew => {}
    }
    Ok(())
}

/// The source of the served certificate.
enum CertificateSource {
    Local(LocalAuthority),
    Files(CertificateFiles),
}

/// An authority that was created for this process.
struct LocalAuthority {
    authority: Box<Authority>,
    names: CertificateNames,
    directory: PathBuf,
}

/// Returns the source, its first certificate, and the CA file for clients.
fn first_certificate(
    options: &ServeOptions,
    directory: &Path,
    bound: IpAddr,
) -> anyhow::Result<(CertificateSource, ServerCertificate, PathBuf)> {
    if let (Some((files, first)), Some(certificate)) = (open_certificate_files(options)?, &options.tls_cert) {
        return Ok((CertificateSource::Files(files), first, certificate.clone()));
    }
    let now = SystemTime::now();
    let mut names = CertificateNames::loopback();
    names.dns.extend(options.dns_name.iter().cloned());
    if !bound.is_unspecified() && !names.addresses.contains(&bound) {
        names.addresses.push(bound);
    }
    let authority = Box::new(Authority::new(now)?);
    let leaf = authority.issue(&names, now)?;
    let files = write_local(directory, &authority, &leaf)?;
    let local = LocalAuthority { authority, names, directory: directory.to_owned() };
    Ok((CertificateSource::Local(local), leaf.server_certificate()?, files.authority))
}

impl LocalAuthority {
    /// Renews the certificate when it is due; never returns.
    async fn renew_when_due(mut self, live: &LiveCertificate, metrics: &Metrics) {
        loop {
            tokio::time::sleep(RENEWAL_CHECK_INTERVAL).await;
            replace_certificate(self.renew(live, SystemTime::now()), live, metrics);
        }
    }

    /// Returns a new certificate if the renewal is due.
    fn renew(
        &mut self,
        live: &LiveCertificate,
        now: SystemTime,
    ) -> Result<Option<ServerCertificate>, CertificateError> {
        if !live.validity().renewal_is_due(now) {
            return Ok(None);
        }
        if self.authority.validity().renewal_is_due(now) {
            *self.authority = Authority::new(now)?;
        }
        let leaf = self.authority.issue(&self.names, now)?;
        write_local(&self.directory, &self.authority, &leaf)?;
        leaf.server_certificate().map(Some)
    }
}

/// Returns `--certs-dir`, or `certs/local` in a checkout, or a new temporary directory that only this user
/// can read.
fn certificate_directory(requested: Option<&Path>) -> anyhow::Result<PathBuf> {
    let make_writable = |path: &Path| fs::create_dir_all(path).and_then(|()| check_writable(path));
    if let Some(requested) = requested {
        make_writable(requested)
            .with_context(|| format!("cannot write to {} (--certs-dir)", requested.display()))?;
        return Ok(requested.to_owned());
    }
    let in_checkout = Path::new("certs/local");
    if Path::new("certs").is_dir() && make_writable(in_checkout).is_ok() {
        return Ok(in_checkout.to_owned());
    }
    let temporary = std::env::temp_dir().join(format!("portcullis-{}", std::process::id()));
    fs::DirBuilder::new().mode(0o700).create(&temporary).with_context(|| {
        format!("cannot create {}. Name a directory with --certs-dir", temporary.display())
    })?;
    Ok(temporary)
}

/// Creates and removes a file in the directory.
fn check_writable(directory: &Path) -> std::io::Result<()> {
    let probe = directory.join(format!(".probe-{}", std::process::id()));
    fs::write(&probe, "")?;
    fs::remove_file(probe)
}

fn print_welcome(address: SocketAddr, admin_address: SocketAddr, ca_file: &Path, sample: &Path) {
    let (strong, command, plain) = (Style::new().bold(), AnsiColor::Cyan.on_default(), Style::new());
    let (web, admin) = (connectable(address), connectable(admin_address));
    let (ca_file, sample) =
        (shell_quoted(&ca_file.display().to_string()), shell_quoted(&format!("@{}", sample.display())));
    // An error is ignored: `serve | head -1` keeps serving.
    let _ = writeln!(
        anstream::stdout(),
        "{strong}Portcullis, webhook only{strong:#}: it reviews the requests that you send, without a cluster.

  reviews   https://{web}/mutate and /validate
  probes    http://{admin}/readyz?verbose and /metrics
  CA file   {ca_file}

Try it. This pod requests a whole GPU and a share of one, so the webhook denies it:

  {command}curl -sS --cacert {ca_file} -H 'content-type: application/json' --data-binary {sample} https://{web}/mutate{command:#}

{plain}Ctrl-C stops it.{plain:#}"
    );
}

/// Returns an address to connect to: loopback if the server listens on all addresses.
fn connectable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Quotes a word for a shell, if needed.
fn shell_quoted(word: &str) -> String {
    let harmless = |character: char| character.is_ascii_alphanumeric() || "/._-@".contains(character);
    if !word.is_empty() && word.chars().all(harmless) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Returns a review of a pod whose GPU requests contradict each other.
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
    fn words_are_quoted_for_the_shell_only_if_needed() {
        let check = |word: &str, expected: &str| assert_eq!(shell_quoted(word), expected);
        check("certs/local/ca.crt", "certs/local/ca.crt");
        check("/tmp/my certs/ca.crt", "'/tmp/my certs/ca.crt'");
        check("it's", r"'it'\''s'");
        check("$HOME", "'$HOME'");
        check("", "''");
    }

    #[test]
    fn an_unspecified_address_is_shown_as_loopback() {
        let check =
            |bound: &str, shown: &str| assert_eq!(connectable(bound.parse().unwrap()).to_string(), shown);
        check("0.0.0.0:8443", "127.0.0.1:8443");
        check("[::]:8443", "[::1]:8443");
        check("10.0.0.7:1", "10.0.0.7:1");
    }
}
