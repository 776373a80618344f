# SPDX-License-Identifier: Apache-2.0
"""Asks a tenant's etcd for its alarms, to tell a store that is full from one that is lost.

The members are asked themselves: what a tenant's API server answers is for the tenant's webhooks to decide.
An operator outside of the super cluster may reach no member. Then the API server is asked to write an Event,
which goes by itself after an hour; a store that is full refuses it.
"""

import asyncio
import base64
import binascii
from collections.abc import Callable

import msgspec

from daemonkit.kube.answers import decoded
from daemonkit.kube.client import ApiClient, ApiError, UnreachableError
from daemonkit.kube.credentials import CredentialsError
from daemonkit.kube.kubeconfig import Access
from daemonkit.kube.resources import ListMeta
from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.probes import StoreProbe
from tenant_operator.edge.control_plane_pods import ComponentPod, pods_of
from tenant_operator.edge.imported_probe import ObjectReader
from tenant_operator.edge.tenant_client import TenantClientError, access_of
from tenant_operator.model import names
from tenant_operator.model.objects import OPERATOR, Object, Ref

# As etcd has it (server/etcdserver/errors: ErrNoSpace); an API server passes it on.
_NO_SPACE = "database space exceeded"
# As etcd has it in the errors of a member's status (server/etcdserver/api/v3rpc/maintenance.go).
_ALARM = "alarm:NOSPACE"
# gRPC's gateway of etcd, which is on at its port for clients. A member answers without a quorum, too.
_MEMBER_STATUS = "/v3/maintenance/status"
_NAMESPACE = "kube-system"
_EVENTS = f"/api/v1/namespaces/{_NAMESPACE}/events"
_ANY_LIST = "/api/v1/namespaces"
_MAX_ANSWER_BYTES = 1 << 20
_MAX_MEMBERS = 3
# Of a revision, which is an int64.
_MAX_DIGITS = 19
# All at a time; what is left of the probe's time is for the API server.
_MEMBERS_S = 2.0
_ENCODER = msgspec.json.Encoder()


class _AnyList(msgspec.Struct, frozen=True):
    metadata: ListMeta


class _StatusHeader(msgspec.Struct, frozen=True):
    revision: str = ""


class _MemberStatus(msgspec.Struct, frozen=True):
    header: _StatusHeader = _StatusHeader()
    errors: list[str] = []


_LIST = msgspec.json.Decoder(_AnyList)
_STATUS = msgspec.json.Decoder(_MemberStatus)


async def ask_store(
    super_cluster: ObjectReader,
    client: ApiClient,
    open_tenant: Callable[[Access], ApiClient],
    probe: StoreProbe,
    now: float,
) -> ProbeResult:
    """Whether the store takes writes; `client` is of the super cluster. Raises ApiError, UnreachableError for
    other reasons than its space."""
    members = await _members(super_cluster, client, open_tenant, probe)
    if not members:
        return await _ask_server(super_cluster, open_tenant, probe, now)
    full = [each for each in members if any(_ALARM in error for error in each.errors)]
    if not full:
        return ProbeResult(is_ok=True, at=now, detail="etcd has no alarm of its quota")
    revisions = [int(text) for text in (each.header.revision for each in full) if _is_number(text)]
    return _full(str(max(revisions)) if revisions else "", now)


def _full(revision: str, now: float) -> ProbeResult:
    facts = {"revision": revision} if _is_number(revision) else {}
    return ProbeResult(is_ok=False, at=now, detail="the store is full", facts=facts)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


async def _members(
    super_cluster: ObjectReader,
    client: ApiClient,
    open_tenant: Callable[[Access], ApiClient],
    probe: StoreProbe,
) -> list[_MemberStatus]:
    """What those answer that do."""
    pair = await super_cluster.get(Ref("Secret", probe.key, names.API_SERVER_ETCD_CLIENT)) or {}
    bundles = await super_cluster.get(Ref("ConfigMap", probe.key, names.AUTHORITIES)) or {}
    try:
        authority = bundles["data"][names.ETCD_BUNDLE].encode()
        certificate, key = (base64.b64decode(pair["data"][name]) for name in ("tls.crt", "tls.key"))
    except (KeyError, binascii.Error):
        return []

    async def ask(pod: ComponentPod) -> _MemberStatus | None:
        access = Access(
            server=pod.url(names.ETCD_PORT),
            server_name=f"{pod.name}.{names.ETCD}.{probe.key}.svc",
            ca_pem=authority,
            certificate_pem=certificate,
            key_pem=key,
        )
        member = open_tenant(access)
        try:
            async with asyncio.timeout(_MEMBERS_S):
                body = await member.request("POST", _MEMBER_STATUS, {}, b"{}", limit_bytes=_MAX_ANSWER_BYTES)
            return decoded(_STATUS, body)
        except (ApiError, UnreachableError, CredentialsError, TimeoutError):
            return None
        finally:
            await member.close()

    pods = [each for each in await pods_of(client, probe.key, names.ETCD) if each.address]
    answers = await asyncio.gather(*map(ask, pods[:_MAX_MEMBERS]))
    return [each for each in answers if each is not None]


async def _ask_server(
    super_cluster: ObjectReader, open_tenant: Callable[[Access], ApiClient], probe: StoreProbe, now: float
) -> ProbeResult:
    credential = Ref("Secret", probe.key, names.OPERATOR_CLIENT)
    try:
        access = access_of(await super_cluster.get(credential))
    except TenantClientError as error:
        return ProbeResult(is_ok=False, at=now, detail=f"{credential}: {error}")
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
    return _full(decoded(_LIST, answer).metadata.resource_version, now)


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
