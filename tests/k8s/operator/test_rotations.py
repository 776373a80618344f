# SPDX-License-Identifier: Apache-2.0
"""All that rotates of one tenant, at the same time, while a client works in it."""

from __future__ import annotations

import base64
import json
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.k8s.operator import load, releases, running_pods, tenants
from tests.k8s.operator.daemon import OperatorDaemon
from tests.k8s.operator.ground import OperatorGround
from tests.k8s.operator.running_pods import RunningPods
from tests.k8s.operator.tenants import OperatedTenant
from tests.k8s.operator.tokens import IssuedToken
from tests.k8s.syncer.daemon import SyncerDaemon

pytestmark = pytest.mark.timeout(500)

_RELEASE = "rotating"
_TOKENS = "service-account-keys"
_CLUSTER, _ETCD = "cluster-ca", "etcd-ca"
_AUTHORITIES = (_CLUSTER, _ETCD, "front-proxy-ca", "kubelet-client-ca", "gateway-ca")
_WHATS = (_TOKENS, "encryption-key", *_AUTHORITIES)
# The kubelet mounts, and kube-apiserver looks at its encryption configuration once a minute.
_ROTATED_S = 300.0
_DAY_S = 86400
_FILES = "/etc/kubernetes/files"
_AUTHENTICATION = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
_ROOT = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt"


@pytest.fixture(scope="module")
def tenant(
    ground: OperatorGround, syncer: SyncerDaemon, operator: OperatorDaemon
) -> Iterator[OperatedTenant]:
    """Ready, with a Deployment and a Secret."""
    tenants.apply(ground, tenants.cluster_version(_RELEASE, releases.CURRENT))
    made = tenants.create(ground, operator, "indigo", clusterVersionName=_RELEASE)
    try:
        made.wait_condition(tenants.READY)
        running_pods.start(made)
        made.kubectl()("create", "secret", "generic", "mine", "--from-literal=word=plain").check()
        yield made
    finally:
        made.delete()


def test_all_rotate_under_load(tenant: OperatedTenant, operator: OperatorDaemon, figures: list[str]) -> None:
    """No request fails, no token dies, no pod of the tenant starts again; the former keys are gone. The
    operator is killed in each phase."""
    token, pods, former = IssuedToken.issue(tenant), RunningPods.of(tenant), tenant.api().endpoint
    before = {what: _secret(tenant, what) for what in _WHATS}
    binary = tenant.ground.ring.binaries["client-load"]
    began = time.monotonic()
    with load.running(binary, tenant.kubectl()) as report:
        tenant.annotate(**{f"rotate_{what.replace('-', '_')}": "one" for what in _WHATS})
        _kill_in(tenant, operator, "Trusted")
        _kill_in(tenant, operator, "Reissued")
        tenant.wait(
            "the rest waits for the store's only member, and for what is in people's hands",
            lambda: (
                _left(tenant) == [_CLUSTER, _ETCD, _TOKENS]
                and _waits(tenant) == {"client", "etcd/etcd-0", "tokens"}
            ),
            timeout_s=_ROTATED_S,
        )
        assert token.is_valid()
    report.check()
    figures.append(f"{tenant.name}: {len(_WHATS)} rotations in {time.monotonic() - began:.0f} s: {report}")
    # By the former certificate and authority; those of the next one do the same work while it ends.
    assert former.request("GET", _ROOT).status == 200
    began = time.monotonic()
    with load.running(binary, tenant.kubectl()) as report:
        tenant.annotate(revoke_cluster_ca="one")
        _kill_in(tenant, operator, "Dropped")
        tenant.wait(
            "the former authority goes", lambda: _left(tenant) == [_ETCD, _TOKENS], timeout_s=_ROTATED_S
        )
    report.check()
    figures.append(f"{tenant.name}: {_CLUSTER} ended in {time.monotonic() - began:.0f} s: {report}")
    assert former.request("GET", _ROOT).status == 401
    began = time.monotonic()
    tenant.root_kubectl("delete", "pod", "etcd-0", "--wait=false").check()
    tenant.wait("the store has started again", lambda: _left(tenant) == [_TOKENS], timeout_s=_ROTATED_S)
    figures.append(f"{tenant.name}: {_ETCD} ended in {time.monotonic() - began:.0f} s")
    assert token.is_valid()
    assert RunningPods.of(tenant) == pods
    assert IssuedToken.issue(tenant).is_valid()
    _check_encryption(tenant, before["encryption-key"])
    bundles = tenant.api().get(_AUTHENTICATION)["data"]
    trusted = [bundles[f"{each}client-ca-file"] for each in ("", "requestheader-")]
    trusted.append(tenant.api().get(_ROOT)["data"]["ca.crt"])
    path = f"/api/v1/namespaces/{tenant.key}/configmaps/authorities"
    trusted.append(tenant.ground.api.get(path)["data"]["etcd-ca.crt"])
    for what in _AUTHORITIES:
        authority = base64.b64decode(before[what]["data"]["tls.crt"]).decode()
        found = _secret(tenant, what)
        assert found["data"].keys() - {"chain.crt"} == {"tls.crt", "tls.key"}
        assert found["data"]["tls.key"] != before[what]["data"]["tls.key"]
        assert authority.strip() not in "".join(trusted)
    assert not _private(*before.values()) & _private(*(_secret(tenant, what) for what in _WHATS))


def test_former_account_key_ends_with_its_tokens(tenant: OperatedTenant) -> None:
    """A day later, as the annotation of the Secret then says."""
    token = IssuedToken.issue(tenant)
    found = _secret(tenant, _TOKENS)
    assert len(_public(found)) == 2
    patch = {"metadata": {"annotations": {"vcnode.io/rotation-since": str(int(time.time()) - _DAY_S)}}}
    tenant.ground.api.patch(_path(tenant, _TOKENS), patch)
    tenant.wait("the former key goes", lambda: _left(tenant) == [])
    (kid,) = _public(_secret(tenant, _TOKENS))
    tenant.wait("it is published no longer", lambda: _published(tenant) == [kid])
    assert token.is_valid()


def _kill_in(tenant: OperatedTenant, operator: OperatorDaemon, phase: str) -> None:
    """Kill the operator as soon as the cluster's authority is in this phase."""
    tenant.wait(
        f"{_CLUSTER} is {phase}",
        lambda: (_CLUSTER, phase) in [(each["what"], each["phase"]) for each in _rotations(tenant)],
        timeout_s=_ROTATED_S,
    )
    operator.stop(signal.SIGKILL)
    operator.start()


def _waits(tenant: OperatedTenant) -> set[str]:
    """The first words of what rotations wait for."""
    return {each.get("waitsFor", "").partition(" ")[0] for each in _rotations(tenant)}


def _rotations(tenant: OperatedTenant) -> list[dict[str, str]]:
    found: list[dict[str, str]] = tenant.get().get("status", {}).get("rotations") or []
    return found


def _left(tenant: OperatedTenant) -> list[str]:
    """What rotates still; before the first plan, all."""
    done = {
        what
        for what in _WHATS
        if _secret(tenant, what)["metadata"]["annotations"].get("vcnode.io/rotation-token") == "one"
    }
    return sorted({*(set(_WHATS) - done), *(each["what"] for each in _rotations(tenant))})


def _path(tenant: OperatedTenant, what: str) -> str:
    name = "encryption-config" if what == "encryption-key" else what
    return f"/api/v1/namespaces/{tenant.key}/secrets/{name}"


def _secret(tenant: OperatedTenant, what: str) -> dict[str, Any]:
    found: dict[str, Any] = tenant.ground.api.get(_path(tenant, what))
    return found


def _private(*secrets: dict[str, Any]) -> set[str]:
    keys = ("tls.key", "signing.pem", "config.yaml")
    return {value for each in secrets for key, value in each["data"].items() if key in keys}


def _public(secret: dict[str, Any]) -> list[str]:
    return [key.removesuffix(".pub") for key in secret["data"] if key.endswith(".pub")]


def _published(tenant: OperatedTenant) -> list[str]:
    shown = tenant.kubectl()("get", "--raw", "/openid/v1/jwks").check().text
    return [each["kid"] for each in json.loads(shown)["keys"]]


def _check_encryption(tenant: OperatedTenant, before: dict[str, Any]) -> None:
    """The Secret that was there is stored by the next key, and the former one is in no configuration."""
    names = [
        json.loads(base64.b64decode(each["data"]["config.yaml"]))["resources"][0]["providers"][0]["secretbox"]
        for each in (before, _secret(tenant, "encryption-key"))
    ]
    (former,), (present,) = ([key["name"] for key in each["keys"]] for each in names)
    assert former != present
    flags = [f"--cacert={_FILES}/authorities/etcd-ca.crt"]
    flags += [f"--{name}={_FILES}/etcd-server/tls.{end}" for name, end in (("cert", "crt"), ("key", "key"))]
    asked = ("get", "/registry/secrets/default/mine", "--print-value-only")
    stored = tenant.root_kubectl(
        "exec", "etcd-0", "--", "etcdctl", "--endpoints=https://localhost:2379", *flags, *asked
    )
    assert stored.check().out.startswith(f"k8s:enc:secretbox:v1:{present}:".encode())
    word = tenant.kubectl()("get", "secret", "mine", "-o", "jsonpath={.data.word}").check().text
    assert base64.b64decode(word) == b"plain"
