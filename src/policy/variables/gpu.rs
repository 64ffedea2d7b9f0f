//! The variable `gpu`: what a pod requests of GPUs.

use std::collections::BTreeSet;

use portcullis_cel::Value;
use portcullis_core::gpu::{self as core_gpu, DeviceKind, GpuRules, GpuShare, ShareSize};
use portcullis_core::model::Resources;
use portcullis_core::objects::names;
use portcullis_core::objects::view::PodView;
use portcullis_core::shape::effective_requests;

use super::subject::RequestSubject;
use super::{FieldValue, number, texts};

/// What one pod requests; all zero if there is no pod.
#[derive(Debug, Default)]
pub(super) struct GpuRequest {
    pub(super) whole: u64,
    mig: u64,
    claims: u64,
    /// MiB on each card.
    vram_mib: u64,
    /// Billionths of a card.
    fraction: u64,
    devices: u64,
    shares: bool,
    conflicts: Vec<String>,
    models: BTreeSet<String>,
}

impl GpuRequest {
    pub(super) fn of(subject: &RequestSubject<'_>) -> Self {
        let RequestSubject::Pod { pod, .. } = subject else { return Self::default() };
        let rules = GpuRules::default();
        // An unreadable quantity counts as nothing; the API server rejects the pod.
        let requests = effective_requests(pod).unwrap_or_default();
        let mut ask = Self {
            whole: rules.whole_gpus(|name| requests.extended(name)),
            mig: mig(&requests),
            shares: core_gpu::asks_for_share(pod),
            models: models(pod),
            conflicts: core_gpu::findings(pod, &rules)
                .into_iter()
                .map(|f| format!("{}: {}", f.field, f.message))
                .collect(),
            ..Self::default()
        };
        let claims =
            core_gpu::device_claims(pod, &rules).into_iter().filter(|claim| claim.kind == DeviceKind::Claim);
        ask.claims = u64::try_from(claims.count()).unwrap_or(u64::MAX);
        if let Some(share) = GpuShare::of(pod) {
            ask.devices = u64::from(share.devices);
            match share.size {
                ShareSize::Vram(mib) => ask.vram_mib = mib.0,
                ShareSize::Fraction(billionths) => ask.fraction = billionths,
            }
        }
        ask
    }

    /// Returns MiB over all cards of the share.
    pub(super) fn total_vram_mib(&self) -> u64 {
        self.vram_mib.saturating_mul(self.devices)
    }

    pub(super) fn fields(&self) -> Vec<FieldValue> {
        let asks = self.whole > 0 || self.mig > 0 || self.shares;
        #[expect(clippy::cast_precision_loss, reason = "less than a billion is exact")]
        let fraction = self.fraction as f64 / 1e9;
        vec![
            ("asks", Ok(Value::Bool(asks))),
            ("whole", Ok(number(self.whole))),
            ("shares", Ok(Value::Bool(self.shares))),
            ("vramMiB", Ok(number(self.vram_mib))),
            ("fraction", Ok(Value::Double(fraction))),
            ("devices", Ok(number(self.devices))),
            ("totalVramMiB", Ok(number(self.total_vram_mib()))),
            ("mig", Ok(number(self.mig))),
            ("claims", Ok(number(self.claims))),
            ("models", Ok(texts(&self.models))),
            ("conflicts", Ok(texts(&self.conflicts))),
        ]
    }
}

fn mig(amounts: &Resources) -> u64 {
    let slices = amounts.extended.iter().filter(|(name, _)| name.starts_with(names::NVIDIA_MIG_PREFIX));
    slices.fold(0, |sum: u64, (_, amount)| sum.saturating_add(*amount))
}

/// Returns the models that the node selector or required node affinity allows by the product label.
fn models(pod: &PodView<'_>) -> BTreeSet<String> {
    let selected = pod.spec.node_selector.text(names::NVIDIA_GPU_PRODUCT).map(str::to_owned);
    let required =
        pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref()?.required.as_ref());
    let terms = required.into_iter().flat_map(|required| &required.node_selector_terms);
    let requirements = terms.flat_map(|term| term.match_expressions.iter().flatten());
    let allowed = requirements
        .filter(|r| r.key.as_str() == names::NVIDIA_GPU_PRODUCT && r.operator.as_str() == "In")
        .flat_map(|r| r.values.iter().map(|value| value.as_str().to_owned()));
    selected.into_iter().chain(allowed).collect()
}
