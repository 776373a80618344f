# SPDX-License-Identifier: Apache-2.0
"""An oversized pod: the responses to its tenant, and to others."""

import json
from pathlib import Path

from devkit.pki import Authority
from tenancy import keys
from tests.functional.vnagent.node import DEADLINE_S, NAME, SPDY, AgentNode, NodeTenant
from tests.functional.vnagent.shop_and_bank import status_of
from tests.waiting import wait_until
from vcnode_demo.super_cluster import FakeSuperCluster

TEXT = (
    "vcnode: the node agent cannot serve pod web/huge, as its object in the super cluster is too large:"
    " metadata.labels has more than 1000 entries; create the pod again without that, or ask the operator"
    " of this node"
)


def test_an_oversized_pod_is_500_for_its_tenant_only(tmp_path: Path) -> None:
    super_cluster = FakeSuperCluster(NAME)
    super_cluster.start()
    try:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(super_cluster.kubeconfig("vn-agent"), encoding="utf-8")
        settings = {"tenants": {"kubeconfigFile": str(kubeconfig)}, "pods": {"source": "superCluster"}}
        tenants = {}
        for tenant in ("a", "b"):
            authority = Authority.create("kubernetes")
            leaf = authority.issue("apiserver")
            key = super_cluster.add_tenant(tenant, authority, leaf, authority.issue("metrics"))
            tenants[key] = NodeTenant(key, authority, leaf)
        mine, other = tenants
        pod = super_cluster.add_tenant_pod("a", mine, "web", "shop", "t-1")
        annotations = {keys.CLUSTER: mine, keys.NAMESPACE: "web", keys.UID: "t-2"}
        super_cluster.add_pod(pod.namespace, "huge", annotations, {f"l{n}": "x" for n in range(1_001)})
        node = AgentNode(tmp_path / "n", [], [pod], settings)
        node.tenants |= tenants
        with node:
            wait_until(lambda: status_of(node.logs(mine, "web", "shop")) == 200, within_s=DEADLINE_S)
            logs = node.logs(mine, "web", "huge")
            assert logs is not None
            assert (logs.status, logs.body.decode()) == (500, TEXT + "\n")
            stream = node.ask(mine, "POST /exec/web/huge/app?command=id&output=1", *SPDY)
            assert stream is not None
            status = json.loads(stream.body)
            assert (stream.status, status["kind"], status["message"]) == (500, "Status", TEXT)

            missing = node.logs(other, "web", "nothing")
            theirs = node.logs(other, "web", "huge")
            assert missing is not None
            assert theirs is not None
            assert (theirs.status, theirs.body) == (missing.status, missing.body)
            assert theirs.status == 404
    finally:
        super_cluster.stop()
