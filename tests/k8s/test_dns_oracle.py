# SPDX-License-Identifier: Apache-2.0
"""The real kubelet as oracle: random pods, and the resolv.conf that each gets from it and from us.

The kubelet's `clusterDNS` is the server of the pods' network, and the tenant calls its namespace as
the super cluster does; the rest has to come out alike, byte by byte, and so do the Events of what
did not fit. Only this may differ:

- the order of options: the kubelet goes over a Go map, so its own order differs from start to start;
- a resolver with nothing in it: containerd then copies the node's /etc/resolv.conf. It is no pod's of
  a tenant: the API server requires a server with policy None, and the others have one or the host's.

The pods need not start: their image is nowhere, and the file is written with the sandbox.
`--oracle-seed` repeats another run.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dnsconfig.cluster.objects import PodObject
from dnsconfig.cluster.state import ClusterState, ResolverSettings
from dnsconfig.resolve.decision import ResolverDecision, decide, node_dns_of
from kata_bridge.cri.client import CriClient, CriError
from kata_bridge.cri.messages import PodSandboxState
from tenancy import keys
from tests.cluster_states import cluster_state_of, decode_object
from tests.k8s.ring import dns_pods
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.dns_pods import SETTINGS, KubeletDns
from tests.k8s.ring.processes import wait_for
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

NAMESPACE = "dns-oracle"
TENANT = "tenant-1-70b001-acme"
PODS_A_SETTING = 20
_SANDBOXES_S, _POLL_S = 120.0, 0.2
_EVENTS_S = 20.0
_PATH = f"/api/v1/namespaces/{NAMESPACE}"


@dataclass(frozen=True, slots=True)
class KubeletResolver:
    """What the kubelet made of a pod."""

    pod: JsonObject
    resolv_conf: str


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda each: each.name)
def test_resolv_conf_equals_the_kubelets(ring: Ring, oracle_seed: int, setting: KubeletDns) -> None:
    rng = random.Random(f"{oracle_seed} {setting.name}")  # noqa: S311 - pods, not secrets
    host_path = ring.directory / f"resolv-{setting.name}.conf"
    host_path.write_text(setting.host_file or "")
    state = _cluster_state(setting)
    differences = []
    with (
        ring.node.kubelet_with(setting.kubelet(str(host_path))),
        _pods(ring, dns_pods.pod_specs(rng, PODS_A_SETTING)) as pods,
    ):
        for observed in _observed(ring, pods):
            computed = _computed(observed.pod, state, setting)
            if _comparable(observed.resolv_conf) != _comparable(computed.text):
                differences.append(_report(observed, computed))
            differences += _different_events(ring, observed.pod, computed)
    replay = f"python -m pytest {__file__} --oracle-seed {oracle_seed}"
    assert not differences, f"again with: {replay}\n" + "\n".join(differences)


def _cluster_state(setting: KubeletDns) -> ClusterState:
    owners = {keys.CLUSTER: TENANT}
    system = f"{NAMESPACE}-system"
    spec = {"clusterIP": setting.servers[0], "clusterIPs": list(setting.servers)}
    named = {"name": "kube-dns-default", "namespace": system}
    return cluster_state_of(
        [
            _object("Namespace", {"name": NAMESPACE, "annotations": owners | {keys.NAMESPACE: NAMESPACE}}),
            _object("Namespace", {"name": system, "annotations": owners | {keys.NAMESPACE: "kube-system"}}),
            _object("Service", named) | {"spec": spec},
            {
                "apiVersion": "arktos.futurewei.com/v1",
                "kind": "Network",
                "metadata": {"name": "default", "namespace": system},
                "spec": {"type": "flat"},
                "status": {"phase": "Ready"},
            },
        ]
    )


def _computed(pod: JsonObject, state: ClusterState, setting: KubeletDns) -> ResolverDecision:
    value = decode_object({"apiVersion": "v1", "kind": "Pod", **pod})
    assert isinstance(value, PodObject)
    given = ClusterState(
        state.namespaces,
        state.services,
        state.networks,
        synced_namespaces=frozenset(state.namespaces),
        settings=ResolverSettings(tenant_domains={TENANT: setting.domain}),
    )
    found = decide(value, given, node_dns_of(setting.host_file))
    assert found is not None
    assert found.waiting is None, found.waiting
    return found


@contextmanager
def _pods(ring: Ring, specs: Sequence[JsonObject]) -> Iterator[list[JsonObject]]:
    """These pods on the node, as the API server has them; in the end gone."""
    api = ring.super_cluster.api
    api.create("/api/v1/namespaces", _object("Namespace", {"name": NAMESPACE}), may_exist=True)
    annotations = {keys.CLUSTER: TENANT, keys.NAMESPACE: NAMESPACE, keys.UID: "oracle"}
    made: list[JsonObject] = []
    try:
        for number, spec in enumerate(specs):
            pod = _object("Pod", {"name": f"oracle-{number}", "annotations": annotations})
            container = {"name": "main", "image": "missing/image:1", "imagePullPolicy": "Never"}
            pod["spec"] = {
                "nodeName": ring.node.name,
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
                **spec,
            }
            made.append(api.create(f"{_PATH}/pods", pod))
        yield made
    finally:
        for pod in made:
            api.delete(f"{_PATH}/pods/{pod['metadata']['name']}")


def _observed(ring: Ring, pods: Sequence[JsonObject]) -> list[KubeletResolver]:
    expected = {pod["metadata"]["uid"]: pod for pod in pods}
    found: dict[str, str] = {}

    def are_ready() -> bool:
        found.update(asyncio.run(_ready_sandboxes(ring.node.cri_socket)))
        missing = [pod["metadata"]["name"] for uid, pod in expected.items() if uid not in found]
        return not missing

    wait_until(are_ready, within_s=_SANDBOXES_S, poll_s=_POLL_S)
    files = ring.node.sandboxes
    return [
        KubeletResolver(expected[uid], (files / found[uid] / "resolv.conf").read_text()) for uid in expected
    ]


async def _ready_sandboxes(socket: Path) -> dict[str, str]:
    """Ids by the uid of the pod; none while a busy runtime responds late."""
    with contextlib.suppress(CriError):
        async with CriClient(socket) as client:
            return {
                each.metadata.uid: each.id
                for each in await client.sandboxes()
                if each.metadata is not None and each.state is PodSandboxState.SANDBOX_READY
            }
    return {}


def _comparable(text: str | None) -> list[str | list[str]]:
    """Lines in their order; of an options line the options in any."""
    lines: list[str | list[str]] = []
    for line in (text or "").splitlines(keepends=True):
        is_options = line.startswith("options ") and line.endswith("\n")
        lines.append(sorted(line[:-1].split(" ")) if is_options else line)
    return lines


def _different_events(ring: Ring, pod: JsonObject, computed: ResolverDecision) -> list[str]:
    """The kubelet's Events about omitted DNS settings, where ours differ."""
    expected = sorted(event.message for event in computed.events)

    def messages() -> list[str]:
        uid = pod["metadata"]["uid"]
        events = ring.super_cluster.api.get(f"{_PATH}/events?fieldSelector=involvedObject.uid%3D{uid}")
        found: set[Any] = {e["message"] for e in events["items"] if e["reason"] == "DNSConfigForming"}
        return sorted(found)

    # Its Events are posted in the background, after the sandbox.
    if expected:
        wait_for(f"Events of {pod['metadata']['name']}", messages, timeout_s=_EVENTS_S)
    found = messages()
    name = pod["metadata"]["name"]
    return [] if found == expected else [f"{name}: Events: kubelet {found}\nours {expected}"]


def _report(observed: KubeletResolver, computed: ResolverDecision) -> str:
    dns_fields = {key: observed.pod["spec"].get(key) for key in ("dnsPolicy", "hostNetwork", "dnsConfig")}
    name = observed.pod["metadata"]["name"]
    return f"{name} {dns_fields}:\nkubelet\n{observed.resolv_conf}\nours\n{computed.text}"


def _object(kind: str, metadata: JsonObject) -> JsonObject:
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}
