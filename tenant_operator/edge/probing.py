# SPDX-License-Identifier: Apache-2.0
"""Asks running parts: a tenant's API server, vc-syncer's namespaces, vn-agents on nodes."""

import asyncio
import base64
from collections.abc import Callable

import msgspec

from daemonkit.kube.client import ApiClient, ApiError, HostResolver, UnreachableError
from daemonkit.kube.credentials import CredentialsError
from daemonkit.kube.kubeconfig import Access
from daemonkit.kube.resources import PODS
from tenancy import keys
from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.probes import (
    NODES_PODS,
    JobLogProbe,
    NamespacesProbe,
    NodesProbe,
    ReadyzProbe,
    RotationProbe,
    ServedProbe,
    ServerPodsProbe,
    SourceProbe,
    StoreProbe,
    SyncerProbe,
    TenantProbe,
)
from tenant_operator.edge.control_plane_pods import ComponentPod, pods_of
from tenant_operator.edge.imported_probe import ask_source
from tenant_operator.edge.imported_source import PROBE_TIMEOUT_S
from tenant_operator.edge.job_log import job_log
from tenant_operator.edge.ready_nodes import ReadyNodes
from tenant_operator.edge.requests import SuperClusterWriter
from tenant_operator.edge.rotation_probe import RotationProber
from tenant_operator.edge.store_probe import ask_store
from tenant_operator.edge.super_namespaces import namespaces_of
from tenant_operator.edge.surroundings import OperatorSurroundings
from tenant_operator.edge.tls_server import first_flight
from tenant_operator.model import names
from tenant_operator.model.objects import Object, Ref

# Of one probe as a whole: what does not answer by then does not serve. Namespaces have it for each page.
TIMEOUT_S = 5.0
# It asks every node.
ROTATION_TIMEOUT_S = 30.0
# It is longer than the one of the import's own API server, whose silence has its own text.
SOURCE_TIMEOUT_S = PROBE_TIMEOUT_S + TIMEOUT_S
_PROBE_TIMEOUT_S: dict[type, float | None] = {
    RotationProbe: ROTATION_TIMEOUT_S,
    NamespacesProbe: None,
    SourceProbe: SOURCE_TIMEOUT_S,
}
# Of the nodes, so many are asked at a time: with thousands of them it is a sample.
MAX_NODES = 16
# API servers of one tenant, and how long one may take.
MAX_SERVERS = 16
HANDSHAKE_S = 3.0
_MAX_LIST_BYTES = 8 << 20


class Prober:
    """Each result has a sentence for people. `resolve` gives the addresses of hosts that authors name."""

    def __init__(
        self,
        super_cluster: SuperClusterWriter,
        client: ApiClient,
        outside: OperatorSurroundings,
        resolve: HostResolver,
    ) -> None:
        self._super = super_cluster
        self._resolve = resolve
        self._client = client
        self._outside = outside
        self._nodes_of_all = ReadyNodes(client, outside.monotonic)
        self._rotations = RotationProber(super_cluster, client, outside.open_tenant)

    async def run(self, probe: TenantProbe) -> ProbeResult:
        """Ask once. What fails is a result."""
        now = self._outside.wall()
        timeout_s = _PROBE_TIMEOUT_S.get(type(probe), TIMEOUT_S)
        try:
            async with asyncio.timeout(timeout_s):
                match probe:
                    case ReadyzProbe():
                        return await self._readyz(probe, now)
                    case SyncerProbe():
                        return await self._syncer(probe, now)
                    case NodesProbe():
                        found = await self._nodes(probe, now)
                        facts = {**found.facts, **({NODES_PODS: probe.pods} if probe.pods else {})}
                        return msgspec.structs.replace(found, facts=facts)
                    case NamespacesProbe():
                        return await self._namespaces(probe, now)
                    case JobLogProbe():
                        return await job_log(self._client, probe, now)
                    case RotationProbe():
                        return await self._rotations.ask(probe, now)
                    case ServedProbe(key):
                        return await self._served(key, now)
                    case ServerPodsProbe():
                        return await self._server_pods(probe, now)
                    case StoreProbe():
                        open_tenant = self._outside.open_tenant
                        return await ask_store(self._super, self._client, open_tenant, probe, now)
                    case SourceProbe():
                        return await self._source(probe, now)
        except TimeoutError:
            return ProbeResult(is_ok=False, at=now, detail=f"no answer within {timeout_s:.0f} s")
        except (ApiError, UnreachableError, CredentialsError) as error:
            return ProbeResult(is_ok=False, at=now, detail=str(error))

    async def _source(self, probe: SourceProbe, now: float) -> ProbeResult:
        def open_import(access: Access) -> ApiClient:
            return self._outside.open_import(access, self._resolve)

        return await ask_source(self._super, self._client.server, open_import, probe, now)

    async def _readyz(self, probe: ReadyzProbe, now: float) -> ProbeResult:
        access = Access(server=probe.server, ca_pem=probe.bundle_pem)
        answer = await self._ask(access, "/readyz", lambda: self._outside.open_tenant(access))
        return ProbeResult(is_ok=not answer, at=now, detail=answer or "ready")

    async def _ask(self, access: Access, path: str, open_client: Callable[[], ApiClient]) -> str:
        """GET a health page; returns why it is not well, or an empty text."""
        client = open_client()
        try:
            await client.request("GET", path, {}, limit_bytes=1 << 16)
        except ApiError as error:
            return f"{access.server}{path} answers {error.status.code}"
        except UnreachableError as error:
            return f"{access.server} does not answer: {error}"
        finally:
            await client.close()
        return ""

    async def _syncer(self, probe: SyncerProbe, now: float) -> ProbeResult:
        found = await self._super.get(Ref("Namespace", "", probe.super_namespace))
        annotations = {} if found is None else found["metadata"].get("annotations") or {}
        is_ok = annotations.get(keys.VC_UID) == probe.uid
        detail = "" if is_ok else f"Namespace {probe.super_namespace} does not exist yet"
        return ProbeResult(is_ok=is_ok, at=now, detail=detail)

    async def _namespaces(self, probe: NamespacesProbe, now: float) -> ProbeResult:
        found = await namespaces_of(self._client, probe.key, probe.uid)
        return ProbeResult(is_ok=not found, at=now, detail="", facts=found)

    async def _server_pods(self, probe: ServerPodsProbe, now: float) -> ProbeResult:
        params = {"labelSelector": f"{names.COMPONENT}={names.API_SERVER}", "limit": "10"}
        body = await self._client.request("GET", PODS.path(probe.key), params, limit_bytes=_MAX_LIST_BYTES)
        listed: Object = msgspec.json.decode(body)
        left = sorted(each["metadata"]["name"] for each in listed.get("items") or ())
        return ProbeResult(is_ok=not left, at=now, detail=" ".join(left))

    async def _served(self, key: str, now: float) -> ProbeResult:
        """One that does not answer yet is not known: it starts with what its Secret has."""

        async def ask(pod: ComponentPod) -> tuple[str, str]:
            try:
                async with asyncio.timeout(HANDSHAKE_S):
                    shown = (await first_flight(pod.address, names.API_SERVER_PORT)).certificates
            except (OSError, ValueError):
                shown = ()
            return pod.name, base64.b64encode(shown[0]).decode() if shown else ""

        pods = await pods_of(self._client, key, names.API_SERVER)
        answers = await asyncio.gather(*(ask(each) for each in pods[:MAX_SERVERS] if each.address))
        facts = {name: text for name, text in answers if text}
        return ProbeResult(is_ok=True, at=now, detail=f"{len(facts)} of {len(pods)} show one", facts=facts)

    async def _sample(self) -> dict[str, str]:
        """Addresses of nodes, others each time: the first ones may all be without a vn-agent."""
        known = await self._nodes_of_all.addresses()
        drawn = sorted((self._outside.jitter(), name) for name in sorted(known))
        return {name: known[name] for _, name in drawn[:MAX_NODES]}

    async def _nodes(self, probe: NodesProbe, now: float) -> ProbeResult:
        secret = await self._super.get(probe.client)
        if secret is None:
            return ProbeResult(is_ok=False, at=now, detail=f"{probe.client} does not exist")
        pair = secret["data"]
        certificate, key = (base64.b64decode(pair[name]) for name in ("tls.crt", "tls.key"))
        nodes = await self._sample()

        async def ask(name: str, address: str) -> tuple[str, str]:
            host = f"[{address}]" if ":" in address else address
            access = Access(
                server=f"https://{host}:{probe.port}",
                ca_pem=probe.authority_pem,
                certificate_pem=certificate,
                key_pem=key,
            )
            return name, await self._ask(access, "/healthz", lambda: self._outside.open_tenant(access))

        answers = dict(await asyncio.gather(*(ask(*each) for each in nodes.items())))
        silent = sorted(name for name, answer in answers.items() if answer)
        facts = {"asked": str(len(answers)), "serving": str(len(answers) - len(silent))}
        if not answers:
            return ProbeResult(
                is_ok=False, at=now, detail="the super cluster has no node that is ready", facts=facts
            )
        if not silent:
            return ProbeResult(
                is_ok=True, at=now, detail=f"vn-agents of {len(answers)} nodes serve it", facts=facts
            )
        self._nodes_of_all.forget()
        first = silent[0]
        detail = f"vn-agent of node {first} does not serve it: {answers[first]}"
        return ProbeResult(is_ok=len(silent) < len(answers), at=now, detail=detail, facts=facts)
