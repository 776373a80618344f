# SPDX-License-Identifier: Apache-2.0
"""Asks every vn-agent whether it accepts clients that the authority in a Secret signs.

By the certificate of a client that is registered nowhere: a vn-agent that knows the authority completes the
handshake and answers 403, another one ends it.
"""

import asyncio
import base64
from collections.abc import Callable

import msgspec

from daemonkit.kube.client import ApiClient, ApiError, UnreachableError
from daemonkit.kube.credentials import CredentialsError
from daemonkit.kube.kubeconfig import Access
from daemonkit.kube.resources import ListMeta
from daemonkit.remedies import Cause
from tenant_operator.core.probes import NodesProbe
from tenant_operator.model import names
from tenant_operator.model.objects import Object
from tenant_operator.pki import issuing
from tenant_operator.pki.catalog import SHORT_DAYS, CertificateUsage, LeafSpec
from tenant_operator.pki.issuing import IssuedPair
from tenant_operator.pki.rotation import ConsumerAnswer

_PAGE = 500
_MAX_PAGE_BYTES = 32 << 20
_AT_A_TIME = 16
_ANSWER_S = 4.0


class _Nodes(msgspec.Struct, frozen=True):
    metadata: ListMeta = ListMeta()
    items: list[Object] = []


async def trusting_nodes(
    client: ApiClient,
    open_node: Callable[[Access], ApiClient],
    nodes: NodesProbe,
    authority: Object,
    ids: frozenset[str],
    now: float,
) -> dict[str, ConsumerAnswer | None]:
    """By node. One where nothing listens has no vn-agent, which reads all at its start.

    `authority` is the Secret: its next key signs, or the present one. Raises ApiError and UnreachableError of
    the super cluster, KeyError and ValueError for a Secret without a key.
    """
    client_pair = _client_of(authority, now)
    slots = asyncio.Semaphore(_AT_A_TIME)
    found: dict[str, ConsumerAnswer | None] = {}

    async def ask(name: str, address: str) -> None:
        host = f"[{address}]" if ":" in address else address
        access = Access(
            server=f"https://{host}:{nodes.port}",
            ca_pem=nodes.authority_pem,
            certificate_pem=client_pair.certificate_pem,
            key_pem=client_pair.key_pem,
        )
        async with slots:
            cause = await _accepts(open_node, access)
        if cause is None:
            found[name] = ConsumerAnswer(ids)
        elif cause is not Cause.REFUSED:
            found[name] = None

    token = ""
    while True:
        params = {"limit": str(_PAGE)} | ({"continue": token} if token else {})
        body = await client.request("GET", "/api/v1/nodes", params, limit_bytes=_MAX_PAGE_BYTES)
        page = msgspec.json.decode(body, type=_Nodes)
        addresses = filter(None, map(internal_address, page.items))
        await asyncio.gather(*(ask(*each) for each in addresses))
        token = page.metadata.continue_
        if not token:
            return found


async def _accepts(open_node: Callable[[Access], ApiClient], access: Access) -> Cause | None:
    """Why a vn-agent did not answer; None for any answer."""
    client = None
    try:
        client = open_node(access)
        async with asyncio.timeout(_ANSWER_S):
            await client.request("GET", "/healthz", {}, limit_bytes=1 << 16)
    except ApiError:
        return None
    except UnreachableError as error:
        return error.cause
    except (TimeoutError, CredentialsError):
        return Cause.TIMEOUT
    finally:
        if client is not None:
            await client.close()
    return None


def _client_of(authority: Object, now: float) -> IssuedPair:
    data = {key: base64.b64decode(value) for key, value in (authority.get("data") or {}).items()}
    which = "next" if "next.key" in data else "tls"
    signer = IssuedPair(data[f"{which}.crt"], data[f"{which}.key"])
    spec = LeafSpec(
        authority["metadata"]["namespace"],
        "",
        names.KUBELET_CLIENT_CA,
        "vcnode:rotation",
        (CertificateUsage.CLIENT,),
        SHORT_DAYS,
    )
    return issuing.issue_pair(spec, signer, now)


def internal_address(node: Object) -> tuple[str, str] | None:
    """A node's name and internal address."""
    addresses = node.get("status", {}).get("addresses") or ()
    for each in addresses:
        if each.get("type") == "InternalIP":
            return node["metadata"]["name"], each["address"]
    return None
