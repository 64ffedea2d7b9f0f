//! Permissions that are revoked while the program runs.

use std::fs;

use portcullis_test_cluster::Portcullis;
use portcullis_test_cluster::wait::WAIT_TIMEOUT;

use super::{cluster, gang, options, start};

/// Waits until a log has a line with all these words.
fn wait_logged(portcullis: &Portcullis<'_>, replica: usize, words: &[&str]) {
    let log = portcullis.log(replica);
    let deadline = std::time::Instant::now() + WAIT_TIMEOUT;
    loop {
        let text = fs::read_to_string(&log).unwrap();
        if text.lines().any(|line| words.iter().all(|word| line.contains(word))) {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "no line with {words:?} in\n{text}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn a_kind_without_read_permission_does_not_stop_the_others() {
    let Some(cluster) = cluster() else { return };
    let portcullis = start(&cluster, options());
    let namespace = cluster.namespace("refused").unwrap();
    cluster.wait_until("a replica leads", || portcullis.leader().is_some());
    let (first, next) = portcullis.leader().map(|leader| (leader, 1 - leader)).unwrap();

    cluster.check(
        &namespace,
        r#"
$ kubectl patch clusterrole portcullis --type=json -p '[{"op":"test","path":"/rules/1/resources/0","value":"priorityclasses"},{"op":"remove","path":"/rules/1"}]'
clusterrole.rbac.authorization.k8s.io/portcullis patched
$~ portcullis doctor | grep -A1 permissions
FAIL  permissions         system:serviceaccount:portcullis-system:portcullis may not get priorityclasses.scheduling.k8s.io, list priorityclasses.scheduling.k8s.io, watch priorityclasses.scheduling.k8s.io
      kubectl apply -k manifests/
"#,
    );
    // The next leader starts without this kind.
    portcullis.kill(first);
    cluster.wait_until("the other one leads", || portcullis.leader() == Some(next));
    cluster.apply(&namespace, &gang("train", 2, 2)).expect_success();
    cluster.check(
        &namespace,
        "
$~ kubectl get gangs
NAME    PHASE      READY   NEEDS   WAITING FOR   POSITION   AGE
train   Admitted   2/2     …
",
    );
    wait_logged(&portcullis, next, &["priorityclasses", "forbidden"]);
    let refused = ["portcullis_", "403"];
    let metrics = metrics(&cluster, &portcullis, next);
    let said = metrics.lines().any(|line| refused.iter().all(|word| line.contains(word)));
    assert!(said, "{metrics}");

    // With the permission back, the kind is read without a restart, and the warning is withdrawn. That also
    // holds for a replica that has lost the lease in between and started again, as on a stalled machine.
    cluster.check(
        &namespace,
        r#"
$ kubectl patch lease portcullis -n portcullis-system --type=merge -p '{"spec":{"holderIdentity":"another"}}'
lease.coordination.k8s.io/portcullis patched
$ kubectl patch clusterrole portcullis --type=json -p '[{"op":"add","path":"/rules/-","value":{"apiGroups":["scheduling.k8s.io"],"resources":["priorityclasses"],"verbs":["get","list","watch"]}}]'
clusterrole.rbac.authorization.k8s.io/portcullis patched
$~ portcullis doctor | grep permissions
ok    permissions         the service account has all 70 permissions that it needs
"#,
    );
    wait_logged(&portcullis, next, &["priorityclasses", "reading this kind succeeds again"]);
}

/// The metrics of a replica.
pub(crate) fn metrics(
    cluster: &portcullis_test_cluster::Cluster,
    portcullis: &Portcullis<'_>,
    replica: usize,
) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let address = portcullis.admin(replica).unwrap();
    cluster.api().runtime().block_on(async {
        let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        connection.write_all(request).await.unwrap();
        let mut text = String::new();
        connection.read_to_string(&mut text).await.unwrap();
        text
    })
}
