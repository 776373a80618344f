# SPDX-License-Identifier: Apache-2.0
"""Which vn-agents accept clients of an authority, by what they answer to one that is registered nowhere."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.kubeconfig import Access
from daemonkit.kube.resources import Status
from daemonkit.remedies import Cause
from tenant_operator.core.probes import NodesProbe
from tenant_operator.edge.node_trust import trusting_nodes
from tenant_operator.model.objects import Ref
from tenant_operator.pki import catalog, issuing
from tenant_operator.pki.facts import facts_of
from tenant_operator.pki.rotation import ConsumerAnswer
from tests.unit.tenant_operator.edge.api_answers import FakeAnswers
from tests.unit.tenant_operator.pki.control_planes import NOW

pytestmark = pytest.mark.asyncio

SPEC = next(each for each in catalog.AUTHORITIES if each.secret == "kubelet-client-ca")
OLD, NEXT = (issuing.new_authority(SPEC, NOW) for _ in range(2))
ANSWERS: dict[str, object] = {
    "10.0.0.1": ApiError(Status(code=403, reason="Forbidden")),
    "10.0.0.2": UnreachableError("alert", Cause.TLS),
    "10.0.0.3": UnreachableError("refused", Cause.REFUSED),
    "10.0.0.4": b"ok",
}


def node(address: str) -> dict[str, Any]:
    return {
        "metadata": {"name": f"node-{address[-1]}"},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }


async def test_each_node_of_all_pages_is_asked() -> None:
    """Where nothing listens is no vn-agent."""
    names = sorted(ANSWERS)
    pages: list[object] = [
        {"metadata": {"continue": "next"}, "items": [node(each) for each in names[:2]]},
        {"metadata": {}, "items": [*(node(each) for each in names[2:]), {"metadata": {"name": "none"}}]},
    ]
    opened: list[Access] = []

    def open_node(access: Access) -> FakeAnswers:
        opened.append(access)
        return FakeAnswers({"GET /healthz": ANSWERS[access.server.split("//")[1].split(":")[0]]})

    data = {"tls.crt": OLD.certificate_pem, "tls.key": OLD.key_pem}
    data |= {"next.crt": NEXT.certificate_pem, "next.key": NEXT.key_pem}
    secret = {
        "metadata": {"namespace": "key"},
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }
    found = await trusting_nodes(
        FakeAnswers({"GET /api/v1/nodes": pages}),  # type: ignore[arg-type]
        open_node,  # type: ignore[arg-type]
        NodesProbe(Ref("Secret", "key", "client"), 10550, b"authority"),
        secret,
        frozenset({"a", "b"}),
        NOW,
    )
    trusting = ConsumerAnswer(frozenset({"a", "b"}))
    assert found == {"node-1": trusting, "node-2": None, "node-4": trusting}
    authority = facts_of(NEXT.certificate_pem)
    assert all(facts_of(each.certificate_pem or b"").is_signed_by(authority) for each in opened)
    assert {each.ca_pem for each in opened} == {b"authority"}
