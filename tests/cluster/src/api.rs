//! Requests to the API server with JSON in and out.
//!
//! The functions block, so that a test reads from top to bottom. A test that sends many requests at a time
//! uses [`Api::client`] on [`Api::runtime`]. Paths are those of the Kubernetes API, such as
//! `/api/v1/namespaces/default/pods`.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

/// An answer of the API server: a result or a refusal.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// HTTP status code.
    pub code: u16,
    /// The object, the list, or the `Status` with the reason. A string when it is not JSON.
    pub body: Value,
}

impl Answer {
    /// The body of an answer below 400.
    ///
    /// # Errors
    /// The message of the API server.
    pub fn into_result(self) -> Result<Value> {
        if self.code < 400 {
            return Ok(self.body);
        }
        bail!("{}: {}", self.code, self.body["message"].as_str().unwrap_or(&self.body.to_string()))
    }
}

/// A client of one API server with the credentials of one user.
#[derive(Clone)]
pub struct Api {
    runtime: Arc<Runtime>,
    client: Client,
}

impl Api {
    /// A client with the server and the user of a kubeconfig file.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub fn new(kubeconfig: &Path) -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let client = runtime
            .block_on(async {
                let file = Kubeconfig::read_from(kubeconfig)?;
                let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
                config.proxy_url = None;
                anyhow::Ok(Client::try_from(config)?)
            })
            .with_context(|| kubeconfig.display().to_string())?;
        Ok(Self { runtime: Arc::new(runtime), client })
    }

    /// The asynchronous client. It works on [`Api::runtime`] and on any other runtime.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The runtime on which requests run.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Sends one request on the runtime of the caller.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn request(
        client: Client,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<Answer> {
        let bytes = match body {
            Some(body) => serde_json::to_vec(body)?,
            None => Vec::new(),
        };
        let request = Request::builder()
            .method(method.clone())
            .uri(path)
            .header(http::header::CONTENT_TYPE, content_type)
            .header(http::header::ACCEPT, "application/json")
            .body(kube::client::Body::from(bytes))?;
        let place = || format!("{method} {path}");
        let response = client.send(request).await.with_context(place)?;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.with_context(place)?.to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Ok(Answer { code, body })
    }

    /// Sends one request and waits for the answer. Do not call it from an asynchronous function.
    ///
    /// # Errors
    /// When the API server does not answer. A refusal is an answer.
    pub fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<Answer> {
        self.runtime.block_on(Self::request(self.client.clone(), method, path, content_type, body))
    }

    /// Reads an object or a list.
    ///
    /// # Errors
    /// No answer, or a refusal.
    pub fn get(&self, path: &str) -> Result<Value> {
        self.send(Method::GET, path, "application/json", None)?
            .into_result()
            .with_context(|| format!("GET {path}"))
    }

    /// Reads an object that may be absent.
    ///
    /// # Errors
    /// No answer, or a refusal other than 404.
    pub fn find(&self, path: &str) -> Result<Option<Value>> {
        let answer = self.send(Method::GET, path, "application/json", None)?;
        if answer.code == 404 {
            return Ok(None);
        }
        answer.into_result().map(Some).with_context(|| format!("GET {path}"))
    }

    /// Creates an object in the collection `path`.
    ///
    /// # Errors
    /// No answer, or a refusal.
    pub fn create(&self, path: &str, object: &Value) -> Result<Value> {
        self.send(Method::POST, path, "application/json", Some(object))?
            .into_result()
            .with_context(|| format!("POST {path} {}", object["metadata"]["name"]))
    }

    /// Merges `change` into an object (`application/merge-patch+json`).
    ///
    /// # Errors
    /// No answer, or a refusal.
    pub fn merge(&self, path: &str, change: &Value) -> Result<Value> {
        self.send(Method::PATCH, path, "application/merge-patch+json", Some(change))?
            .into_result()
            .with_context(|| format!("PATCH {path}"))
    }

    /// Changes an object with an RFC 6902 patch.
    ///
    /// # Errors
    /// No answer, or a refusal.
    pub fn patch(&self, path: &str, operations: &Value) -> Result<Value> {
        self.send(Method::PATCH, path, "application/json-patch+json", Some(operations))?
            .into_result()
            .with_context(|| format!("PATCH {path}"))
    }

    /// Deletes an object or, by the path of its collection, all of them.
    ///
    /// # Errors
    /// No answer, or a refusal. An absent object is not an error.
    pub fn delete(&self, path: &str) -> Result<()> {
        let answer = self.send(Method::DELETE, path, "application/json", None)?;
        if answer.code != 404 {
            answer.into_result().with_context(|| format!("DELETE {path}"))?;
        }
        Ok(())
    }
}
