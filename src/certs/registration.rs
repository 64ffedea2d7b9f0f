//! The `caBundle` fields of a webhook configuration, and the JSON patch that updates them. Pure: JSON in,
//! JSON out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The webhooks of Portcullis in a `MutatingWebhookConfiguration` or `ValidatingWebhookConfiguration`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registration {
    resource_version: String,
    /// Index, name and `caBundle` (PEM, empty if missing) of each webhook whose name ends in
    /// `.portcullis.dev`.
    hooks: Vec<(usize, String, String)>,
}

impl Registration {
    /// Reads a configuration. Webhooks of other programs are ignored.
    pub fn read(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let hooks = object["webhooks"].as_array().map(Vec::as_slice).unwrap_or_default();
        let ours = hooks.iter().enumerate().filter_map(|(index, hook)| {
            let name = text(&hook["name"]);
            let bundle = STANDARD.decode(text(&hook["clientConfig"]["caBundle"])).unwrap_or_default();
            let bundle = String::from_utf8_lossy(&bundle).into_owned();
            name.ends_with(".portcullis.dev").then_some((index, name, bundle))
        });
        Self { resource_version: text(&object["metadata"]["resourceVersion"]), hooks: ours.collect() }
    }

    /// Returns the names of the webhooks whose `caBundle` differs from `bundle` (PEM).
    pub fn hooks_without(&self, bundle: &str) -> Vec<&str> {
        self.hooks_where(|has| has != bundle)
    }

    /// Returns the names of the webhooks whose `caBundle` is empty.
    pub fn hooks_without_bundle(&self) -> Vec<&str> {
        self.hooks_where(str::is_empty)
    }

    fn hooks_where(&self, matches: impl Fn(&str) -> bool) -> Vec<&str> {
        self.hooks.iter().filter(|(_, _, has)| matches(has)).map(|(_, name, _)| name.as_str()).collect()
    }

    /// Returns the number of webhooks of Portcullis.
    pub fn len(&self) -> usize {
        self.hooks.len()
    }

    /// Whether the configuration has no webhook of Portcullis.
    pub fn is_empty(&self) -> bool {
        self.hooks.is_empty()
    }

    /// Returns the JSON patch that sets `caBundle` of all webhooks to `bundle`; `None` if nothing differs.
    /// The patch tests the resource version of the configuration, so a slow replica never replaces a newer
    /// bundle with an older one.
    pub fn patch(&self, bundle: &str) -> Option<Value> {
        let encoded = STANDARD.encode(bundle);
        let mut operations =
            vec![json!({"op": "test", "path": "/metadata/resourceVersion", "value": self.resource_version})];
        for (index, _, _) in self.hooks.iter().filter(|(_, _, has)| has != bundle) {
            let path = format!("/webhooks/{index}/clientConfig/caBundle");
            operations.push(json!({"op": "add", "path": path, "value": encoded}));
        }
        (operations.len() > 1).then_some(Value::Array(operations))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patch_changes_only_own_webhooks_whose_bundle_differs() {
        let object = json!({
            "metadata": {"resourceVersion": "7"},
            "webhooks": [
                {"name": "pods.portcullis.dev", "clientConfig": {"caBundle": STANDARD.encode("new")}},
                {"name": "pods.example.com", "clientConfig": {"caBundle": STANDARD.encode("theirs")}},
                {"name": "groups.portcullis.dev", "clientConfig": {"caBundle": STANDARD.encode("old")}},
                {"name": "changes.portcullis.dev", "clientConfig": {"service": {"name": "portcullis"}}}
            ]
        });
        let registration = Registration::read(&object);
        assert_eq!(registration.hooks_without("new"), ["groups.portcullis.dev", "changes.portcullis.dev"]);
        let expected = json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
            {"op": "add", "path": "/webhooks/2/clientConfig/caBundle", "value": STANDARD.encode("new")},
            {"op": "add", "path": "/webhooks/3/clientConfig/caBundle", "value": STANDARD.encode("new")}
        ]);
        assert_eq!(registration.patch("new"), Some(expected.clone()));

        let mut written = object;
        let patch: json_patch::Patch = serde_json::from_value(expected).unwrap();
        json_patch::patch(&mut written, &patch).unwrap();
        assert_eq!(Registration::read(&written).patch("new"), None);
        assert_eq!(written["webhooks"][1]["clientConfig"]["caBundle"], STANDARD.encode("theirs"));
        assert_eq!(written["webhooks"][3]["clientConfig"]["service"]["name"], "portcullis");
    }

    #[test]
    fn an_empty_configuration_needs_no_patch() {
        for object in [json!({}), json!({"webhooks": null}), json!({"webhooks": []})] {
            assert!(Registration::read(&object).is_empty());
            assert_eq!(Registration::read(&object).patch("new"), None);
        }
    }
}
