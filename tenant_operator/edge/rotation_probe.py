# SPDX-License-Identifier: Apache-2.0
"""Asks the consumers of keys that rotate: each API server's pod, and what its tenant holds.

One that does not answer is None among the answers, and the rotation waits for it by name. The tenant decides
what it answers about its own objects; all that is read is bounded.
"""

import asyncio
import base64
import dataclasses
from collections.abc import Awaitable, Callable
from typing import TypeVar

from daemonkit.kube.client import ApiClient, ApiError, UnreachableError
from daemonkit.kube.kubeconfig import Access
from tenancy import keys
from tenant_operator.core import rotations
from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.probes import RotationProbe
from tenant_operator.edge import account_keys, tenant_client
from tenant_operator.edge.authority_keys import (
    RotatingAuthority,
    published,
    read_authority,
    root_certificates,
)
from tenant_operator.edge.control_plane_pods import ComponentPod, pods_of
from tenant_operator.edge.encryption_keys import has_loaded
from tenant_operator.edge.node_trust import trusting_nodes
from tenant_operator.edge.requests import SuperClusterWriter
from tenant_operator.edge.tenant_client import TenantClientError
from tenant_operator.edge.tls_server import first_flight
from tenant_operator.model import names
from tenant_operator.model.objects import Ref
from tenant_operator.pki.rotation import ENCRYPTION_KEY, Asked, Consumer, ConsumerAnswer

Found = TypeVar("Found")

# Of one consumer; all are asked at a time.
_ANSWER_S = 4.0
# Of all nodes, sixteen at a time, or of all namespaces.
_ALL_S = 20.0
# What programs show as clients and the operator cannot ask for, by the authority that signs it.
_SHOWN = {
    names.CLUSTER_CA: names.CONTROLLER_MANAGER_CLIENT,
    names.ETCD_CA: names.API_SERVER_ETCD_CLIENT,
    names.FRONT_PROXY_CA: names.FRONT_PROXY_CLIENT,
    names.KUBELET_CLIENT_CA: names.API_SERVER_KUBELET_CLIENT,
}
_PORTS = {names.API_SERVER: names.API_SERVER_PORT, names.ETCD: names.ETCD_PORT}


class RotationProber:
    """`client` is of the super cluster, `open_tenant` opens one of a tenant's API server."""

    def __init__(
        self,
        super_cluster: SuperClusterWriter,
        client: ApiClient,
        open_tenant: Callable[[Access], ApiClient],
    ) -> None:
        self._super = super_cluster
        self._client = client
        self._open_tenant = open_tenant

    async def ask(self, probe: RotationProbe, now: float) -> ProbeResult:
        """All that a rotation waits for, in one result. Raises ApiError and UnreachableError of the super
        cluster."""
        credential = Ref("Secret", probe.secret.namespace, names.OPERATOR_CLIENT)
        try:
            access = tenant_client.access_of(await self._super.get(credential))
        except TenantClientError as error:
            return ProbeResult(is_ok=False, at=now, detail=f"{credential}: {error}")
        if probe.what == ENCRYPTION_KEY:
            asked = await self._encryption_key(probe, access)
        elif probe.what == names.SERVICE_ACCOUNT_KEYS:
            asked = await self._service_account_keys(probe, access)
        else:
            asked = await self._authority(probe, access, now)
        facts = {rotations.VERSION: probe.version, rotations.ASKED: rotations.encode(asked)}
        return ProbeResult(is_ok=True, at=now, facts=facts)

    async def _service_account_keys(self, probe: RotationProbe, access: Access) -> Asked:
        pods = await pods_of(self._client, probe.secret.namespace, names.API_SERVER)
        servers, secrets = await asyncio.gather(
            self._of_each(pods, access, account_keys.answer),
            _one(self._with_client(access, account_keys.token_secrets)),
        )
        return {Consumer.API_SERVER: servers, Consumer.TOKEN_SECRETS: secrets}

    async def _encryption_key(self, probe: RotationProbe, access: Access) -> Asked:
        """An API server that has loaded the present configuration decrypts by all of its keys, and encrypts
        by the first."""
        secret = await self._super.get(probe.secret) or {}
        config = base64.b64decode((secret.get("data") or {}).get("config.yaml", ""))
        ids = ((secret.get("metadata") or {}).get("annotations") or {}).get(keys.KEY_IDS, "").split(",")
        loaded = ConsumerAnswer(frozenset(filter(None, ids)), frozenset(ids[:1]))
        pods = await pods_of(self._client, probe.secret.namespace, names.API_SERVER)
        started = {each.name for each in pods if each.has_started_with(probe.files.get(names.API_SERVER, ""))}

        async def ask(client: ApiClient) -> ConsumerAnswer:
            return loaded if await has_loaded(client, config) else ConsumerAnswer()

        others = tuple(each for each in pods if each.name not in started)
        asked = await self._of_each(others, access, ask)
        return {Consumer.API_SERVER: asked | dict.fromkeys(started, loaded)}

    async def _authority(self, probe: RotationProbe, access: Access, now: float) -> Asked:
        """API servers by a handshake, in which they name the authorities of their clients."""
        namespace = probe.secret.namespace
        shown = _SHOWN.get(probe.what)
        leaf = None if shown is None else await self._super.get(Ref("Secret", namespace, shown))
        secret = await self._super.get(probe.secret) or {}
        try:
            authority = read_authority(secret, leaf)
        except (KeyError, ValueError):
            return {}
        if probe.what == names.CLUSTER_CA:
            return await self._cluster_authority(probe, access, authority)
        if probe.what == names.ETCD_CA:
            return {
                Consumer.ETCD: await self._flights(authority, namespace, names.ETCD),
                Consumer.API_SERVER: await self._started(authority, probe, names.API_SERVER),
            }
        digest = probe.files.get(names.API_SERVER, "")
        pods = await pods_of(self._client, namespace, names.API_SERVER)
        if probe.nodes is not None:
            nodes = await _one(
                trusting_nodes(self._client, self._open_tenant, probe.nodes, secret, authority.ids, now),
                _ALL_S,
            )
            users = {each.name: ConsumerAnswer(uses=authority.shown_by(each, digest)) for each in pods}
            return {Consumer.VN_AGENT: nodes, Consumer.API_SERVER: dict(users)}

        async def ask(pod: ComponentPod) -> ConsumerAnswer:
            flight = await first_flight(pod.address, names.API_SERVER_PORT)
            return authority.of_server(flight, pod, digest)

        servers = await asyncio.gather(*(_one(ask(each)) for each in pods))
        return {
            Consumer.API_SERVER: dict(zip((each.name for each in pods), servers, strict=True)),
            Consumer.AUTHENTICATION: await _one(
                self._with_client(access, lambda client: published(client, authority))
            ),
            # This version has no gateway.
            Consumer.GATEWAY: {},
        }

    async def _cluster_authority(
        self, probe: RotationProbe, access: Access, authority: RotatingAuthority
    ) -> Asked:
        """Who has a kubeconfig is not asked here."""
        return {
            Consumer.API_SERVER: await self._flights(authority, probe.secret.namespace, names.API_SERVER),
            Consumer.CONTROLLER_MANAGER: await self._started(authority, probe, names.CONTROLLER_MANAGER),
            Consumer.AUTHENTICATION: await _one(
                self._with_client(access, lambda client: published(client, authority))
            ),
            Consumer.ROOT_CERTIFICATES: await _one(
                self._with_client(access, lambda client: root_certificates(client, authority)), _ALL_S
            ),
        }

    async def _started(
        self, authority: RotatingAuthority, probe: RotationProbe, component: str
    ) -> dict[str, ConsumerAnswer | None]:
        """Of each pod what it has read if it is of the present template."""
        digest = probe.files.get(component, "")
        pods = await pods_of(self._client, probe.secret.namespace, component)
        return {each.name: authority.of_started(each, digest) for each in pods}

    async def _flights(
        self, authority: RotatingAuthority, namespace: str, component: str
    ) -> dict[str, ConsumerAnswer | None]:
        """Of each pod what it shows and accepts in a handshake."""
        pods = await pods_of(self._client, namespace, component)

        async def ask(pod: ComponentPod) -> ConsumerAnswer:
            return authority.of_flight(await first_flight(pod.address, _PORTS[component]))

        found = await asyncio.gather(*(_one(ask(each)) for each in pods))
        return dict(zip((each.name for each in pods), found, strict=True))

    async def _of_each(
        self,
        pods: tuple[ComponentPod, ...],
        access: Access,
        question: Callable[[ApiClient], Awaitable[ConsumerAnswer]],
    ) -> dict[str, ConsumerAnswer | None]:
        """The answer of each API server, by the name of its pod."""

        async def one(pod: ComponentPod) -> ConsumerAnswer | None:
            if not pod.address:
                return None
            own = dataclasses.replace(
                access, server=pod.url(names.API_SERVER_PORT), server_name=names.API_SERVER_SERVICE
            )
            return await _one(self._with_client(own, question))

        found = await asyncio.gather(*map(one, pods))
        return {pod.name: answer for pod, answer in zip(pods, found, strict=True)}

    async def _with_client(self, access: Access, question: Callable[[ApiClient], Awaitable[Found]]) -> Found:
        client = self._open_tenant(access)
        try:
            return await question(client)
        finally:
            await client.close()


async def _one(answer: Awaitable[Found], timeout_s: float = _ANSWER_S) -> Found | None:
    """None for no answer: what it was is not the rotation's matter, which names who is waited for."""
    try:
        async with asyncio.timeout(timeout_s):
            return await answer
    except (ApiError, UnreachableError, OSError, ValueError):
        return None
