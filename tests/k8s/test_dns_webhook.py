# SPDX-License-Identifier: Apache-2.0
"""The webhook as a process of its own, as it is shipped, called by a real apiserver for real pods."""

from __future__ import annotations

import base64
import datetime as dt
import json
import signal
import ssl
import time
from collections.abc import Iterator

import pytest
from cryptography import x509

from dns_webhook.credentials import (
    AUTHORITY_LIFE,
    AUTHORITY_RENEWAL,
    LEAF_LIFE,
    LEAF_RENEWAL,
    Credentials,
)
from dns_webhook.registration import NAME, PATH, split
from tenancy import keys
from tests.k8s.ring import gate_networks, webhook
from tests.k8s.ring.api import HttpResponse, JsonObject, TlsEndpoint
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.daemons import NodeDaemon
from tests.k8s.ring.processes import RingError, wait_for
from tests.k8s.ring.tenants import RingTenant
from tests.waiting import wait_until

_TIMEOUT_S = 30.0
_NAMES = (f"{webhook.SERVICE}.{webhook.NAMESPACE}.svc",)


@pytest.fixture(scope="module")
def address(ring: Ring) -> Iterator[str]:
    """What is shipped, applied; the address of its Service."""
    gate_networks.install(ring.super_cluster.api)
    with webhook.installed(ring) as found:
        yield found


@pytest.fixture(scope="module")
def daemon(ring: Ring, acme: RingTenant, address: str) -> Iterator[NodeDaemon]:
    """The webhook, called by the apiserver, and a network `red` that is ready."""
    api = ring.super_cluster.api
    ring.syncer.create_namespace(acme, "default")
    networks = f"/apis/arktos.futurewei.com/v1/namespaces/{acme.super_namespace('kube-system')}/networks"
    blue = _object("Network", "arktos.futurewei.com/v1", name="blue")
    with gate_networks.network(ring, acme, "red", "10.88.0.1"):
        api.create(networks, {**blue, "spec": {"type": "flat"}})
        api.patch(f"{networks}/blue/status", {"status": {"phase": "Pending"}})
        made = webhook.daemon(ring, address)
        try:
            made.start()
            wait_for("called", lambda: _is_called(ring, acme), timeout_s=_TIMEOUT_S)
            yield made
        finally:
            made.stop()
            api.delete(f"{networks}/blue")


# ---- decisions about pods


def test_a_pod_gets_the_server_of_its_network(ring: Ring, acme: RingTenant, daemon: NodeDaemon) -> None:
    system = acme.super_namespace("kube-system")
    server = ring.super_cluster.api.get(f"/api/v1/namespaces/{system}/services/kube-dns-red")
    spec = _dry_run(ring, acme, network="red")["spec"]
    assert spec["dnsPolicy"] == "None"
    assert spec["dnsConfig"] == {
        "nameservers": [server["spec"]["clusterIP"]],
        "searches": [
            *("default.svc.cluster.local", "svc.cluster.local", "cluster.local"),
            # Of the node's file, what an API server takes.
            *("node.example", "corp.example"),
        ],
        "options": [{"name": "ndots", "value": "5"}],
    }
    given = {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.1"], "searches": ["Corp.Example"]}}
    assert _create(ring, acme, _tenants_pod(acme, "red", given)).status == 422
    for bad in ("corp!example", "Team.Example"):
        reply = _create(ring, acme, _tenants_pod(acme, "red", {"dnsConfig": {"searches": [bad]}}))
        assert (reply.status, bad in reply.text) == (422, True)
    assert _dry_run(ring, acme, network="red", dnsPolicy="Default")["spec"]["dnsPolicy"] == "Default"


def test_stored_pod_equals_its_dry_run(ring: Ring, acme: RingTenant, daemon: NodeDaemon) -> None:
    promised = _dry_run(ring, acme, network="red")["spec"]
    pods = f"/api/v1/namespaces/{acme.super_namespace('default')}/pods"
    api = ring.super_cluster.api
    made = api.create(pods, _tenants_pod(acme, "red", {}))
    path = f"{pods}/{made['metadata']['name']}"
    try:
        stored = api.get(path)["spec"]
        assert [stored[key] for key in ("dnsPolicy", "dnsConfig")] == [
            promised[key] for key in ("dnsPolicy", "dnsConfig")
        ]
        reviews = daemon.metric("vcnode_dnswebhook_reviews_total")
        # Only its creation is reviewed.
        api.patch(path, {"metadata": {"labels": {keys.ARKTOS_NETWORK: "blue"}}})
        api.patch(f"{path}/status", {"status": {"message": "seen"}})
        assert daemon.metric("vcnode_dnswebhook_reviews_total") == reviews
    finally:
        api.delete(path)


@pytest.mark.parametrize(("network", "words"), [("blue", "blue"), ("none", "none"), ("A_b", "not a valid")])
def test_a_pod_without_a_resolver_is_refused(
    ring: Ring, acme: RingTenant, daemon: NodeDaemon, network: str, words: str
) -> None:
    with pytest.raises(RingError, match=f"no DNS for this pod: .*{words}"):
        _dry_run(ring, acme, network=network)


def test_pod_changed_by_another_webhook_is_patched_once(
    ring: Ring, acme: RingTenant, daemon: NodeDaemon
) -> None:
    """A pod created from a patched one gets the same."""
    first = _dry_run(ring, acme, network="red")["spec"]
    kept = {key: first[key] for key in ("dnsPolicy", "dnsConfig")}
    again = _dry_run(ring, acme, network="red", **kept)["spec"]
    assert {key: again[key] for key in kept} == kept


def test_a_search_list_that_was_cut_is_a_warning(ring: Ring, acme: RingTenant, daemon: NodeDaemon) -> None:
    many = {"nameservers": ["192.0.2.1", "192.0.2.2", "192.0.2.3"]}
    pod = _tenants_pod(acme, "red", {"dnsConfig": many})
    reply = _create(ring, acme, pod)
    assert reply.status == 201
    assert "Nameserver limits were exceeded" in reply.headers["warning"]
    assert len(reply.json()["spec"]["dnsConfig"]["nameservers"]) == 3


# ---- when it is away, hangs, or is sent what is too much


def test_pods_without_a_tenant_are_admitted_without_webhook(
    ring: Ring, acme: RingTenant, daemon: NodeDaemon
) -> None:
    daemon.stop()
    try:
        with pytest.raises(RingError, match="failed calling webhook"):
            _dry_run(ring, acme, network="red")
        pod = _pod({}, {})
        made = ring.super_cluster.api.create("/api/v1/namespaces/kube-system/pods?dryRun=All", pod)
        assert made["spec"]["dnsPolicy"] == "ClusterFirst"
        # Its own pod starts while it is away, and in a namespace that demands what it demands.
        template = webhook.shipped("deployment.yaml", "Deployment")["spec"]["template"]
        own = {"apiVersion": "v1", "kind": "Pod", **template}
        own["metadata"] = {**template["metadata"], "generateName": "webhook-"}
        ring.super_cluster.api.create(f"/api/v1/namespaces/{webhook.NAMESPACE}/pods?dryRun=All", own)
        own["spec"] = {**own["spec"], "hostNetwork": True}
        with pytest.raises(RingError, match="violates PodSecurity"):
            ring.super_cluster.api.create(f"/api/v1/namespaces/{webhook.NAMESPACE}/pods?dryRun=All", own)
    finally:
        daemon.start()
    wait_for("called again", lambda: _is_called(ring, acme), timeout_s=_TIMEOUT_S)


def test_a_webhook_that_hangs_costs_its_timeout(ring: Ring, acme: RingTenant, daemon: NodeDaemon) -> None:
    assert daemon.process is not None
    daemon.process.send(signal.SIGSTOP)
    began = time.monotonic()
    try:
        with pytest.raises(RingError, match="failed calling webhook"):
            _dry_run(ring, acme, network="red")
        registration = webhook.shipped("registration.yaml", "MutatingWebhookConfiguration")
        assert time.monotonic() - began >= registration["webhooks"][0]["timeoutSeconds"]
    finally:
        daemon.process.send(signal.SIGCONT)
    wait_for("called again", lambda: _is_called(ring, acme), timeout_s=_TIMEOUT_S)


def test_large_pod_is_reviewed_and_oversized_one_refused(
    ring: Ring, acme: RingTenant, daemon: NodeDaemon
) -> None:
    """An apiserver takes 3 MiB, and writes `<` as six characters into its request."""
    reviewed = daemon.metric("vcnode_dnswebhook_reviews_total")

    def sized(character: str) -> JsonObject:
        pod = _tenants_pod(acme, "red", {})
        pod["spec"]["containers"][0]["env"] = [{"name": "LARGE", "value": character * (1 << 20)}]
        return pod

    reply = _create(ring, acme, sized("x"))
    assert (reply.status, reply.json()["spec"]["dnsPolicy"]) == (201, "None")
    assert daemon.metric("vcnode_dnswebhook_reviews_total") > reviewed
    reply = _create(ring, acme, sized("<"))
    assert reply.status >= 400
    assert "failed calling webhook" in reply.text
    assert "status code 413" in reply.text


def test_its_probes_answer(ring: Ring, daemon: NodeDaemon, address: str) -> None:
    (container,) = webhook.shipped("deployment.yaml", "Deployment")["spec"]["template"]["spec"]["containers"]
    for probe in ("readinessProbe", "livenessProbe"):
        path = container[probe]["httpGet"]["path"]
        assert _port(ring, address).request("GET", path).status == 200


# ---- its registration, and its certificates


def test_registration_equals_the_shipped_file(ring: Ring, daemon: NodeDaemon) -> None:
    """The apiserver has dropped nothing of it and filled in nothing that matters."""
    found = webhook.registered(ring)
    (registered,) = webhook.shipped("registration.yaml", "MutatingWebhookConfiguration")["webhooks"]
    assert found["clientConfig"].pop("caBundle")
    assert found.pop("matchPolicy") == "Equivalent"
    assert found.pop("namespaceSelector") == found.pop("objectSelector") == {}
    assert found == registered


def test_reapplied_registration_keeps_its_ca_bundle(ring: Ring, acme: RingTenant, daemon: NodeDaemon) -> None:
    before = webhook.registered(ring)
    webhook.apply(ring, "registration.yaml")
    assert webhook.registered(ring) == before
    _dry_run(ring, acme, network="red")


def test_new_authorities_come_into_the_registration(ring: Ring, acme: RingTenant, daemon: NodeDaemon) -> None:
    """Its state is lost: it makes another authority, and the old one stays, as it may be a replica's."""
    before = _bundle(ring)
    daemon.stop()
    for path in (daemon.directory / "state").iterdir():
        path.unlink()
    daemon.start()
    wait_for("called again", lambda: _is_called(ring, acme), timeout_s=_TIMEOUT_S)
    after = _bundle(ring)
    assert set(before) < set(after)


def test_emptied_ca_bundle_is_filled_again(ring: Ring, acme: RingTenant, daemon: NodeDaemon) -> None:
    (bundle,) = _credentials(daemon).bundle
    step = {"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}
    api = ring.super_cluster.api
    api.endpoint.request(
        "PATCH",
        f"{PATH}/{NAME}",
        body=json.dumps([step]).encode(),
        headers={"Content-Type": "application/json-patch+json"},
    )
    wait_for("filled", lambda: _bundle(ring) == [bundle], timeout_s=_TIMEOUT_S)
    wait_for("called again", lambda: _is_called(ring, acme), timeout_s=_TIMEOUT_S)


@pytest.mark.parametrize("what", ["certificate", "authority"])
def test_certificate_renewal_refuses_no_pod(
    ring: Ring, acme: RingTenant, daemon: NodeDaemon, address: str, what: str
) -> None:
    """Its clock is a day behind, and then it is not: in between something has become due."""
    behind, half = dt.timedelta(days=1), dt.timedelta(hours=12)
    now = dt.datetime.now(dt.UTC)
    daemon.stop()
    for path in (daemon.directory / "state").iterdir():
        path.unlink()
    aged = Credentials(daemon.directory / "state", _NAMES)
    if what == "certificate":
        aged.renew_due(now - (LEAF_LIFE - LEAF_RENEWAL) - half, ())
    else:
        aged.renew_due(now - (AUTHORITY_LIFE - AUTHORITY_RENEWAL) - half, ())
        aged.renew_due(now - behind, aged.bundle)
    (old,) = aged.bundle
    webhook.set_clock(ring, behind)
    daemon.start()
    wait_for("called again", lambda: _is_called(ring, acme), timeout_s=_TIMEOUT_S)
    before = _shown_serial(ring, address)
    webhook.set_clock(ring, dt.timedelta(0))

    def is_renewed() -> bool:
        _dry_run(ring, acme, network="red")
        serial = _shown_serial(ring, address)
        return serial != before

    # Without a pause: a pod may come at any moment of the renewal.
    wait_until(is_renewed, within_s=_TIMEOUT_S, poll_s=0, context=lambda: daemon.page("/readyz")[1])
    for _ in range(10):
        _dry_run(ring, acme, network="red")
    renewed = _credentials(daemon)
    assert renewed.leaf is not None
    assert _shown(ring, address) == ssl.PEM_cert_to_DER_cert(renewed.leaf.certificate_pem.decode())
    assert len(renewed.bundle) == (1 if what == "certificate" else 2)
    assert renewed.bundle[0] == old
    renewed.leaf.certificate.verify_directly_issued_by(renewed.authorities[-1].certificate)
    assert set(renewed.bundle) <= set(_bundle(ring))


# ---- helpers


def _shown(ring: Ring, address: str) -> bytes:
    """The certificate that is shown now, verified by what is registered now."""
    with _port(ring, address).dial() as connection:
        found = connection.getpeercert(binary_form=True)
    assert found is not None
    return found


def _shown_serial(ring: Ring, address: str) -> int:
    return x509.load_der_x509_certificate(_shown(ring, address)).serial_number


def _credentials(daemon: NodeDaemon) -> Credentials:
    return Credentials(daemon.directory / "state", _NAMES)


def _port(ring: Ring, address: str) -> TlsEndpoint:
    return webhook.port(ring, address, b"".join(_bundle(ring)))


def _bundle(ring: Ring) -> list[bytes]:
    return split(base64.b64decode(webhook.registered(ring)["clientConfig"].get("caBundle", "")))


def _is_called(ring: Ring, tenant: RingTenant) -> bool:
    """An API server receives a registration and its authorities a moment after they are written."""
    try:
        return bool(_dry_run(ring, tenant, network="red")["spec"]["dnsPolicy"] == "None")
    except RingError as error:
        if "failed calling webhook" in str(error):
            return False
        raise


def _dry_run(ring: Ring, tenant: RingTenant, *, network: str, **spec: object) -> JsonObject:
    """A pod as the API server would store it."""
    where = f"/api/v1/namespaces/{tenant.super_namespace('default')}/pods?dryRun=All"
    return ring.super_cluster.api.create(where, _tenants_pod(tenant, network, spec))


def _create(ring: Ring, tenant: RingTenant, pod: JsonObject) -> HttpResponse:
    """The API server's response to a dry run, also an error."""
    return ring.super_cluster.api.endpoint.request(
        "POST",
        f"/api/v1/namespaces/{tenant.super_namespace('default')}/pods?dryRun=All",
        body=json.dumps(pod).encode(),
        headers={"Content-Type": "application/json"},
    )


def _tenants_pod(tenant: RingTenant, network: str, spec: JsonObject) -> JsonObject:
    annotations = {keys.CLUSTER: tenant.key, keys.NAMESPACE: "default", keys.UID: "any"}
    return _pod({"labels": {keys.ARKTOS_NETWORK: network}, "annotations": annotations}, spec)


def _pod(metadata: JsonObject, spec: JsonObject) -> JsonObject:
    containers = [{"name": "main", "image": "missing/image:1"}]
    made = _object("Pod", "v1", generateName="webhook-", **metadata)
    return {**made, "spec": {"containers": containers, **spec}}


def _object(kind: str, version: str, **metadata: object) -> JsonObject:
    return {"apiVersion": version, "kind": kind, "metadata": metadata}
