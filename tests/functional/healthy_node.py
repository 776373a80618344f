# SPDX-License-Identifier: Apache-2.0
"""The files of a healthy node: configurations of all daemons, and everything that they name.

Faults are planted into it: by tests of `--check-config`, `vcnode check` and `vcnode doctor`.
"""

import contextlib
import datetime as dt
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from devkit.kube import wire
from devkit.kubelet.pods import pod_list
from devkit.pki import Authority, Leaf
from tenancy import keys
from tests.cases.agent_files import NODE, configuration, tenant_document

DAEMONS = {
    "vn-agent": "vnagent",
    "kata-bridge": "kata_bridge",
    "kubeproxy-ext": "kubeproxy_ext",
    "dnsconfig": "dnsconfig",
    "dnsconfig-webhook": "dns_webhook",
    "vc-syncer": "syncer",
    "vc-operator": "tenant_operator",
}
KINDS = {
    "vn-agent": "VnAgentConfiguration",
    "kata-bridge": "KataBridgeConfiguration",
    "kubeproxy-ext": "KubeproxyExtConfiguration",
    "dnsconfig": "DnsConfigConfiguration",
    "dnsconfig-webhook": "DnsWebhookConfiguration",
    "vc-syncer": "SyncerConfiguration",
    "vc-operator": "OperatorConfiguration",
}
DAY = dt.timedelta(days=1)


class HealthyNode:
    """All files in `directory`; `kubelet_port` and `server` are where its certificates lead."""

    def __init__(self, directory: Path, *, kubelet_port: int = 10250, server: str = "") -> None:
        self.directory = directory
        self.kubelet_port = kubelet_port
        self.server = server or "https://127.0.0.1:6443"
        self.super_authority = Authority.create("super-cluster")
        self.serving = Authority.create("agent-serving")
        self.kubelet_authority = Authority.create("kubelet-serving")
        self.agent_clients = Authority.create("agent-clients")
        self.tenant = Authority.create("kubernetes")
        self.documents: dict[str, dict[str, Any]] = {}

    def write(self) -> None:
        """Write everything anew."""
        for name in ("state", "tenants", "kubeconfigs", "run", "audit", "guests"):
            (self.directory / name).mkdir(mode=0o755, exist_ok=True)
        self.serving.issue(NODE, sans_dns=[NODE], sans_ip=["127.0.0.1"]).write(self.directory, "serving")
        self.agent_clients.issue(f"vcnode:vn-agent:{NODE}", usages=("client",)).write(self.directory, "agent")
        self.kubelet_authority.write(self.directory, "kubelet-ca")
        self.serving.write(self.directory, "agent-serving-ca")
        leaf = self.tenant.issue("kube-apiserver-kubelet-client")
        document = tenant_document("ten-a", self.tenant.cert_pem, [(leaf.spki_sha256, "apiserver")])
        (self.directory / "tenants" / "ten-a.yaml").write_text(yaml.safe_dump(document))
        (self.directory / "pods.json").write_text(json.dumps(pod_list([])))
        (self.directory / "resolv.conf").write_text("nameserver 192.0.2.53\nsearch example.org\n")
        for daemon in (*DAEMONS, "meta"):
            self.write_kubeconfig(self.kubeconfig(daemon), self.super_authority.issue(daemon))
        self.write_kubeconfig(
            self.directory / "kubeconfigs" / "ten-a.kubeconfig", self.tenant.issue("syncer")
        )
        self.documents = self._configurations()
        for daemon in DAEMONS:
            self.write_config(daemon)

    def kubeconfig(self, daemon: str) -> Path:
        return self.directory / f"{daemon}.kubeconfig"

    def config(self, daemon: str) -> Path:
        return self.directory / f"{daemon}.yaml"

    def write_kubeconfig(self, path: Path, leaf: Leaf | None, *, user: dict[str, Any] | None = None) -> None:
        text = wire.kubeconfig(self.server, self.super_authority.cert_pem, leaf)
        document = yaml.safe_load(text)
        if user is not None:
            document["users"][0]["user"] = user
        path.write_text(yaml.safe_dump(document))

    def edit_kubeconfig(self, daemon: str, part: str, **values: Any) -> None:
        """Change `cluster`, `user` or `context` of it."""
        path = self.kubeconfig(daemon)
        document = yaml.safe_load(path.read_text())
        document[f"{part}s"][0][part].update(values)
        path.write_text(yaml.safe_dump(document))

    def write_config(self, daemon: str, **sections: Any) -> None:
        """The daemon's configuration with these sections replaced."""
        self.documents[daemon].update(sections)
        self.config(daemon).write_text(yaml.safe_dump(self.documents[daemon]))

    def _configurations(self) -> dict[str, dict[str, Any]]:
        where = self.directory

        def document(daemon: str, **sections: Any) -> dict[str, Any]:
            head = {"apiVersion": keys.API_VERSION, "kind": KINDS[daemon]}
            return head | {"status": {"socket": str(where / "run" / f"{daemon}.sock")}} | sections

        agent = configuration(
            where,
            kubelet_port=self.kubelet_port,
            pods={"source": "kubelet", "intervalSeconds": 0.2},
        )
        agent["audit"] = {"file": str(where / "audit" / "audit.jsonl")}
        agent["status"] = {"socket": str(where / "run" / "vn-agent.sock")}
        cluster = {each: {"kubeconfigFile": str(self.kubeconfig(each))} for each in DAEMONS}
        bridge = {"socket": str(where / "run" / "bridge.sock")}
        resolv_conf = str(where / "resolv.conf")
        return {
            "vn-agent": agent,
            "kata-bridge": document(
                "kata-bridge",
                stateDirectory=str(where / "state" / "kata-bridge"),
                lockFile=str(where / "run" / "kata-bridge.lock"),
                listen={"socket": str(where / "run" / "bridge.sock")},
                sandboxes={
                    "nri": {"socket": str(where / "run" / "nri.sock")},
                    "directory": str(where / "guests"),
                },
                agent={"socket": str(where / "run" / "agents.sock")},
                gate={
                    "directory": str(where / "run" / "pods"),
                    "superCluster": {**cluster["kata-bridge"], "nodeName": NODE},
                },
            ),
            "kubeproxy-ext": document(
                "kubeproxy-ext",
                nodeName=NODE,
                superCluster=cluster["kubeproxy-ext"],
                bridge=bridge,
                stateDirectory=str(where / "state" / "kubeproxy-ext"),
            ),
            "dnsconfig": document(
                "dnsconfig",
                nodeName=NODE,
                superCluster=cluster["dnsconfig"],
                bridge=bridge,
                resolvConf=resolv_conf,
                stateDirectory=str(where / "state" / "dnsconfig"),
            ),
            "dnsconfig-webhook": document(
                "dnsconfig-webhook",
                superCluster=cluster["dnsconfig-webhook"],
                listen={"address": "127.0.0.1", "port": 0, "names": ["dnsconfig.vcnode.svc"]},
                resolvConf=resolv_conf,
                stateDirectory=str(where / "state" / "webhook"),
            ),
            "vc-syncer": document(
                "vc-syncer",
                superCluster=cluster["vc-syncer"],
                tenants={"directory": str(where / "kubeconfigs")},
            ),
            "vc-operator": document(
                "vc-operator",
                superCluster=cluster["vc-operator"],
                nodes={"servingCaFile": str(where / "agent-serving-ca.crt")},
            ),
        }


@contextlib.contextmanager
def listening(*paths: Path) -> Iterator[None]:
    """Unix sockets that accept connections and say nothing."""
    with contextlib.ExitStack() as stack:
        for path in paths:
            path.unlink(missing_ok=True)
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(str(path))
            server.listen()
        yield


def is_root() -> bool:
    return os.geteuid() == 0
