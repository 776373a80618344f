# SPDX-License-Identifier: Apache-2.0
"""The shipped rights and example configurations, as the rings use them.

A ring that gives a daemon more than `packaging/rbac`, or a setting that `examples/` lacks, tests something
that no operator installs. So rights come from the files alone, with the node's name instead of `node-1`, and
a configuration is an example that differs only in the settings listed here.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import yaml

from devkit.pki import Leaf
from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.controlplane import Apiserver, write_kubeconfig

ROOT = Path(__file__).resolve().parents[3]
PACKAGING = ROOT / "packaging"
RBAC = PACKAGING / "rbac"
_EXAMPLES = ROOT / "examples"
_NODE = "node-1"

# Names, addresses and paths, which differ from machine to machine.
SITE_SETTINGS = frozenset(
    {
        *("nodeName", "stateDirectory", "lockFile", "resolvConf", "serviceCIDRs", "tenants"),
        *("listen.address", "listen.port", "listen.socket", "bridge.socket", "status.socket"),
        *("serving.certificateFile", "serving.keyFile", "tenants.directory", "audit.file"),
        *("kubelet.address", "kubelet.port", "kubelet.caFile", "kubelet.serverName"),
        *("kubelet.clientCertificateFile", "kubelet.clientKeyFile", "superCluster.kubeconfigFile"),
        *("sandboxes.directory", "stock.shimDirectories"),
        *("agent.address", "agent.port", "agent.vsockPort", "agent.gateways"),
        *("gate.directory", "gate.superCluster.kubeconfigFile", "gate.superCluster.nodeName"),
    }
)
# Settings that a ring's machine lacks, or that a test is about; each with its reason.
REASONS = {
    "listen.group": "the machine that runs the tests has no group vcnode; only root connects",
    "runtimes": "each handler of the ring is runc by another name, with one channel of its own",
    "sandboxes.nri": "the rules probe is tested on a node without NRI",
    "sandboxes.cri": "guests are described by files where there is no container runtime",
    "sandboxes.cri.intervalSeconds": "a test waits for a list",
    "drift.checkSeconds": "a test waits for a drift check",
    "drain.seconds": "a test waits for an end",
    "pages.maxAgeSeconds": "a test compares a page with pods that it just created",
    "injectedContainers": "a test has a container that the super cluster adds",
    "gate": "Services are tested without the gate too",
    "gate.superCluster": "the gate without rights in the super cluster is tested too",
    "gate.policy": "a bench compares with a node without the gate",
    "gate.namespaces": "each policy is tested",
    "lastKnown": "both values are tested",
    "canary": "the rules probe is tested",
}


class NotShippedError(Exception):
    """A ring configures a setting that is neither shipped nor listed here."""


def configuration(name: str, settings: Mapping[str, object], *, without: tuple[str, ...] = ()) -> JsonObject:
    """An example with other settings, by dotted keys, and without the keys `without`.

    Raises `NotShippedError` for a key that is not listed.
    """
    made: JsonObject = copy.deepcopy(yaml.safe_load((_EXAMPLES / name).read_text()))
    for key in (*without, *settings):
        if key not in SITE_SETTINGS and key not in REASONS:
            raise NotShippedError(f"{name}: {key} is in neither SITE_SETTINGS nor REASONS")
    for key in without:
        del _mapping(made, key)[key.rpartition(".")[2]]
    for key, value in settings.items():
        _mapping(made, key)[key.rpartition(".")[2]] = value
    return made


def _mapping(made: JsonObject, key: str) -> JsonObject:
    """The mapping that has the last part of a dotted key; it is made where it is missing."""
    for parent in key.split(".")[:-1]:
        made = made.setdefault(parent, {})
    return made


def apply_rights(api: KubernetesApi, node: str, *names: str) -> None:
    """Create all policies and roles in these files of `packaging/rbac`, for this node.

    Their namespaces exist already.

    Accounts are left out: daemons of rings are users, with client certificates.
    """
    for name in names:
        for value in yaml.safe_load_all((RBAC / name).read_text().replace(_NODE, node)):
            if value["kind"] == "ServiceAccount":
                continue
            kind = f"{value['kind'].lower()}s".replace("policys", "policies")
            namespace = value["metadata"].get("namespace")
            where = f"namespaces/{namespace}/{kind}" if namespace else kind
            api.create(f"/apis/{value['apiVersion']}/{where}", value, may_exist=True)


def issue_user(cluster: Apiserver, daemon: str, node: str) -> Leaf:
    """A daemon's client certificate, as the README requires it."""
    return cluster.authority.issue(
        f"vcnode:{daemon}:{node}", organization=f"vcnode:{daemon}s", usages=("client",)
    )


def let_in(cluster: Apiserver, daemon: str, node: str, directory: Path) -> Path:
    """Give a daemon its shipped rights; returns its kubeconfig in `directory`."""
    # The policy first: between the two the rights would be wider than what is shipped.
    for name in (f"{daemon}-policy.yaml", f"{daemon}.yaml"):
        if (RBAC / name).exists():
            apply_rights(cluster.api, node, name)
    directory.mkdir(exist_ok=True)
    endpoint = replace(cluster.api.endpoint, leaf=issue_user(cluster, daemon, node))
    return write_kubeconfig(directory / "user", f"https://{endpoint.address}:{endpoint.port}", endpoint)
