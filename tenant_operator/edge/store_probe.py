# SPDX-License-Identifier: Apache-2.0
"""Asks a tenant's API server to write, to tell a store that is full from one that is lost.

What is written is an Event, which goes by itself after an hour. A store that is full refuses it.
"""

from collections.abc import Callable

import msgspec

from daemonkit.kube.answers import decoded
from daemonkit.kube.client import ApiClient, ApiError
from daemonkit.kube.kubeconfig import Access
from daemonkit.kube.resources import ListMeta
from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.probes import StoreProbe
from tenant_operator.edge.imported_probe import ObjectReader
from tenant_operator.edge.tenant_client import TenantClientError, access_of
from tenant_operator.model.objects import OPERATOR, Object

# As etcd has it (server/etcdserver/errors: ErrNoSpace); an API server passes it on.
_NO_SPACE = "database space exceeded"
_NAMESPACE = "kube-system"
_EVENTS = f"/api/v1/namespaces/{_NAMESPACE}/events"
_ANY_LIST = "/api/v1/namespaces"
_MAX_ANSWER_BYTES = 1 << 20
_ENCODER = msgspec.json.Encoder()


class _AnyList(msgspec.Struct, frozen=True):
    metadata: ListMeta


_LIST = msgspec.json.Decoder(_AnyList)


async def ask_store(
    super_cluster: ObjectReader, open_tenant: Callable[[Access], ApiClient], probe: StoreProbe, now: float
) -> ProbeResult:
    """Whether the store takes a write. Raises ApiError, UnreachableError for other reasons than its space."""
    try:
        access = access_of(await super_cluster.get(probe.credential))
    except TenantClientError as error:
        return ProbeResult(is_ok=False, at=now, detail=f"{probe.credential}: {error}")
    client = open_tenant(access)
    try:
        body = _ENCODER.encode(_event())
        try:
            await client.request("POST", _EVENTS, {}, body, limit_bytes=_MAX_ANSWER_BYTES)
        except ApiError as error:
            if _NO_SPACE not in error.status.message:
                raise
        else:
            return ProbeResult(is_ok=True, at=now, detail="the store takes writes")
        answer = await client.request("GET", _ANY_LIST, {"limit": "1"}, limit_bytes=_MAX_ANSWER_BYTES)
    finally:
        await client.close()
    revision = decoded(_LIST, answer).metadata.resource_version
    is_known = revision.isascii() and revision.isdigit()
    facts = {"revision": revision} if is_known else {}
    return ProbeResult(is_ok=False, at=now, detail="the store is full", facts=facts)


def _event() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{OPERATOR}-", "namespace": _NAMESPACE},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Namespace",
            "name": _NAMESPACE,
            "namespace": _NAMESPACE,
        },
        "reason": "StoreAsked",
        "message": "vc-operator asked whether the datastore takes writes, as it was not ready",
        "type": "Normal",
        "source": {"component": OPERATOR},
    }
