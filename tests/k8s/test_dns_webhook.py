# SPDX-License-Identifier: Apache-2.0
"""The webhook as a process of its own, asked by a real apiserver about real pods."""

from __future__ import annotations

import base64
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dnsconfig.webhook.registration import NAME, PATH, TIMEOUT_S, registration
from tenancy import keys
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.daemons import NodeDaemon
from tests.k8s.ring.processes import RingError, wait_for
from tests.k8s.ring.tenants import Tenant

_PORT = 9443
_PATIENCE_S = 20.0
_CRD = Path(__file__).resolve().parents[2] / "packaging" / "crds" / "networks.yaml"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="module")
def webhook(ring: Ring, acme: Tenant) -> Iterator[NodeDaemon]:
    """The webhook beside the apiserver, registered, and a network `red` that is ready."""
    api = ring.super_cluster.api
    created = bool(api.create(_CRDS, yaml.safe_load(_CRD.read_text()), may_exist=True))
    system = acme.super_namespace("kube-system")
    ring.syncer.create_namespace(acme, "kube-system")
    networks = f"/apis/arktos.futurewei.com/v1/namespaces/{system}/networks"
    wait_for("CRD served", lambda: _lists(ring, networks), timeout_s=_PATIENCE_S)
    for name, phase in (("red", "Ready"), ("blue", "Pending")):
        network = _object("Network", "arktos.futurewei.com/v1", name=name)
        api.create(networks, {**network, "spec": {"type": "flat"}}, may_exist=True)
        api.patch(f"{networks}/{name}/status", {"status": {"phase": phase}})
    service = _object("Service", "v1", name="kube-dns-red", labels={keys.ARKTOS_NETWORK: "red"})
    ports = {"ports": [{"port": 53, "protocol": "UDP"}]}
    api.create(f"/api/v1/namespaces/{system}/services", {**service, "spec": ports}, may_exist=True)
    url = f"https://{ring.control.address}:{_PORT}/mutate"
    api.create(PATH, registration({"url": url}))
    daemon = NodeDaemon("dnsconfig-webhook", "dnsconfig.webhook", ring, sys.executable, _wrapper(ring))
    (daemon.directory / "resolv.conf").write_text("search node.example\n")
    daemon.configure(
        "DnsWebhookConfiguration",
        {
            "superCluster": {
                "kubeconfigFile": str(ring.super_cluster.kubeconfig),
                "hasVirtualClusters": False,
            },
            "listen": {
                "names": [ring.control.address],
                "address": ring.control.address,
                "port": _PORT,
            },
            "stateDirectory": str(daemon.directory / "state"),
            "resolvConf": str(daemon.directory / "resolv.conf"),
        },
    )
    try:
        daemon.start()
        wait_for("asked", lambda: _is_asked(ring, acme), timeout_s=_PATIENCE_S)
        yield daemon
    finally:
        daemon.stop()
        api.delete(f"{PATH}/{NAME}")
        if created:
            api.delete(f"{_CRDS}/networks.arktos.futurewei.com")


def test_a_pod_gets_the_server_of_its_network(ring: Ring, acme: Tenant, webhook: NodeDaemon) -> None:
    system = acme.super_namespace("kube-system")
    server = ring.super_cluster.api.get(f"/api/v1/namespaces/{system}/services/kube-dns-red")
    spec = _dry_run(ring, acme, network="red")["spec"]
    assert spec["dnsPolicy"] == "None"
    assert spec["dnsConfig"] == {
        "nameservers": [server["spec"]["clusterIP"]],
        "searches": ["default.svc.cluster.local", "svc.cluster.local", "cluster.local", "node.example"],
        "options": [{"name": "ndots", "value": "5"}],
    }
    assert _dry_run(ring, acme, network="red", dnsPolicy="Default")["spec"]["dnsPolicy"] == "Default"


@pytest.mark.parametrize(("network", "words"), [("blue", "blue"), ("none", "none"), ("A_b", "can be no")])
def test_a_pod_without_a_resolver_is_refused(
    ring: Ring, acme: Tenant, webhook: NodeDaemon, network: str, words: str
) -> None:
    with pytest.raises(RingError, match=f"no DNS for this pod: .*{words}"):
        _dry_run(ring, acme, network=network)


def test_pods_of_nobody_are_let_in_while_it_is_away(ring: Ring, acme: Tenant, webhook: NodeDaemon) -> None:
    webhook.stop()
    try:
        with pytest.raises(RingError, match="failed calling webhook"):
            _dry_run(ring, acme, network="red")
        pod = _pod({}, {})
        made = ring.super_cluster.api.create("/api/v1/namespaces/kube-system/pods?dryRun=All", pod)
        assert made["spec"]["dnsPolicy"] == "ClusterFirst"
    finally:
        webhook.start()
    _dry_run(ring, acme, network="red")


def test_a_webhook_that_hangs_costs_its_timeout(ring: Ring, acme: Tenant, webhook: NodeDaemon) -> None:
    assert webhook.process is not None
    webhook.process.send(signal.SIGSTOP)
    began = time.monotonic()
    try:
        with pytest.raises(RingError, match="failed calling webhook"):
            _dry_run(ring, acme, network="red")
        assert TIMEOUT_S <= time.monotonic() - began < 3 * TIMEOUT_S
    finally:
        webhook.process.send(signal.SIGCONT)
    _dry_run(ring, acme, network="red")


def test_new_authorities_come_into_the_registration(ring: Ring, acme: Tenant, webhook: NodeDaemon) -> None:
    """Its state is lost: it makes another authority, and the old one stays, as it may be a replica's."""
    before = _bundle(ring)
    webhook.stop()
    for path in (webhook.directory / "state").iterdir():
        path.unlink()
    webhook.start()
    wait_for("asked again", lambda: _is_asked(ring, acme), timeout_s=_PATIENCE_S)
    after = _bundle(ring)
    assert before in after
    assert before != after


def test_what_is_sent_that_is_no_review(ring: Ring, webhook: NodeDaemon) -> None:
    code = [
        _post(ring, b"{}", "application/json"),
        _post(ring, b"{}", "text/plain"),
        _post(ring, b"x" * (4 << 20), "application/json"),
    ]
    assert code == [400, 415, 413]


def _post(ring: Ring, body: bytes, kind: str) -> int:
    endpoint = type(ring.super_cluster.api.endpoint)(
        ring.control, ring.control.address, _PORT, base64.b64decode(_bundle_text(ring)), None
    )
    return endpoint.request("POST", "/mutate", body=body, headers={"Content-Type": kind}).status


def _bundle_text(ring: Ring) -> str:
    (webhook,) = ring.super_cluster.api.get(f"{PATH}/{NAME}")["webhooks"]
    return str(webhook["clientConfig"].get("caBundle", ""))


def _bundle(ring: Ring) -> bytes:
    return base64.b64decode(_bundle_text(ring))


def _wrapper(ring: Ring) -> list[str]:
    # On the node nsenter forks, as it enters a process namespace; NodeDaemon signals the only child.
    return [*ring.control.enter, "unshare", "--fork", "--kill-child=KILL"]


def _lists(ring: Ring, path: str) -> bool:
    try:
        ring.super_cluster.api.get(path)
    except RingError:
        return False
    return True


def _is_asked(ring: Ring, tenant: Tenant) -> bool:
    """An API server hears of a registration and its authorities a moment after they are written."""
    try:
        return bool(_dry_run(ring, tenant, network="red")["spec"]["dnsPolicy"] == "None")
    except RingError as error:
        if "failed calling webhook" in str(error):
            return False
        raise


def _dry_run(ring: Ring, tenant: Tenant, *, network: str, **spec: object) -> JsonObject:
    """A pod as the API server would store it."""
    annotations = {keys.CLUSTER: tenant.key, keys.NAMESPACE: "default", keys.UID: "any"}
    pod = _pod({"labels": {keys.ARKTOS_NETWORK: network}, "annotations": annotations}, spec)
    where = f"/api/v1/namespaces/{tenant.super_namespace('default')}/pods?dryRun=All"
    return ring.super_cluster.api.create(where, pod)


def _pod(metadata: JsonObject, spec: JsonObject) -> JsonObject:
    containers = [{"name": "main", "image": "nobody/knows:1"}]
    made = _object("Pod", "v1", generateName="webhook-", **metadata)
    return {**made, "spec": {"containers": containers, **spec}}


def _object(kind: str, version: str, **metadata: object) -> JsonObject:
    return {"apiVersion": version, "kind": kind, "metadata": metadata}
