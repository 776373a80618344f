# SPDX-License-Identifier: Apache-2.0
"""Whom a rotation asks, and what an answer that does not come is."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from daemonkit.kube.kubeconfig import Access
from tenant_operator.core import rotations
from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.probes import RotationProbe
from tenant_operator.edge.rotation_probe import RotationProber
from tenant_operator.model.objects import Object, Ref
from tests.unit.tenant_operator.edge.api_answers import FakeAnswers, unreachable
from tests.unit.tenant_operator.edge.test_account_keys import TOKEN, token_of
from tests.unit.tenant_operator.edge.test_encryption_keys import metrics
from tests.unit.tenant_operator.provisioners.imported.secrets_of_others import kubeconfig

pytestmark = pytest.mark.asyncio

SERVER = "https://10.96.7.7:6443"
PODS = "GET /api/v1/namespaces/key/pods"
KEYS = {"GET /openid/v1/jwks": {"keys": [{"kid": "a"}]}, TOKEN: {"status": {"token": token_of("a")}}}
SECRETS: dict[str, Any] = {"GET /api/v1/secrets": {"items": []}}


def pod(name: str, address: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"phase": "Running", "podIP": address}}


class FakeCluster:
    """The root namespace `key`, and API servers by their addresses."""

    def __init__(self, servers: dict[str, FakeAnswers], *pods: dict[str, Any]) -> None:
        self.servers = servers
        self.super = FakeAnswers({PODS: {"items": list(pods)}})
        text = base64.b64encode(kubeconfig().encode()).decode()
        self.secret: Object | None = {"data": {"kubeconfig": text}}
        self.config: Object | None = None
        self.opened: list[Access] = []

    async def get(self, ref: Ref) -> Object | None:
        return self.secret if ref == Ref("Secret", "key", "operator-client") else self.config

    def open(self, access: Access) -> FakeAnswers:
        self.opened.append(access)
        return self.servers.get(access.server, self.servers["tenant"])

    async def ask(self, what: str, files: dict[str, str] | None = None) -> ProbeResult:
        prober = RotationProber(self, self.super, self.open)  # type: ignore[arg-type]
        return await prober.ask(RotationProbe(what, Ref("Secret", "key", "x"), "7", files or {}), 5.0)


async def test_each_api_server_is_asked_about_accounts() -> None:
    servers = {
        "tenant": FakeAnswers({**SECRETS}),
        "https://10.0.0.1:6443": FakeAnswers({**KEYS}),
        "https://10.0.0.2:6443": FakeAnswers({**KEYS, TOKEN: unreachable()}),
    }
    cluster = FakeCluster(servers, pod("one", "10.0.0.1"), pod("two", "10.0.0.2"), pod("three", ""))
    found = await cluster.ask("service-account-keys")
    assert (found.is_ok, found.at, found.facts[rotations.VERSION]) == (True, 5.0, "7")
    assert json.loads(found.facts[rotations.ASKED]) == {
        "apiserver": {"one": {"trusts": ["a"], "uses": ["a"]}, "two": None, "three": None},
        "token-secrets": {},
    }
    assert {each.server_name for each in cluster.opened if each.server != SERVER} == {"apiserver-svc"}
    assert all(each.is_closed for each in servers.values())


async def test_each_api_server_is_asked_about_encryption() -> None:
    """Those of 1.33 have no metric: one that started with the present file has read it."""
    servers = {
        "tenant": FakeAnswers({}),
        "https://10.0.0.1:6443": FakeAnswers({"GET /metrics": metrics(b"now")}),
        "https://10.0.0.2:6443": FakeAnswers({"GET /metrics": metrics(b"before")}),
    }
    new = pod("new", "10.0.0.3")
    new["metadata"]["annotations"] = {"vcnode.io/files-digest": "d"}
    new["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    cluster = FakeCluster(servers, pod("one", "10.0.0.1"), pod("two", "10.0.0.2"), new)
    annotations = {"vcnode.io/key-ids": "a,,b"}
    cluster.config = {
        "metadata": {"annotations": annotations},
        "data": {"config.yaml": base64.b64encode(b"now").decode()},
    }
    found = await cluster.ask("encryption-key", {"apiserver": "d"})
    loaded = {"trusts": ["a", "b"], "uses": ["a"]}
    assert json.loads(found.facts[rotations.ASKED]) == {
        "apiserver": {"new": loaded, "one": loaded, "two": {"trusts": [], "uses": []}}
    }
    found = await cluster.ask("encryption-key")
    assert json.loads(found.facts[rotations.ASKED])["apiserver"]["new"] is None


async def test_without_a_credential_nobody_is_asked() -> None:
    cluster = FakeCluster({"tenant": FakeAnswers({})})
    cluster.secret = None
    found = await cluster.ask("service-account-keys")
    assert (found.is_ok, found.facts) == (False, {})
    assert "delete the Secret: it is issued anew" in found.detail
