# SPDX-License-Identifier: Apache-2.0
"""Reads the kubeconfig that a VirtualCluster imports, and asks the API server that it leads to."""

import asyncio
import base64
import binascii
from typing import Any

import msgspec

from daemonkit.kube import kubeconfig
from daemonkit.kube.answers import decoded
from daemonkit.kube.client import ApiError, Requester, UnreachableError
from daemonkit.kube.kubeconfig import Access, KubeconfigError
from daemonkit.kube.resources import NAMESPACES
from daemonkit.remedies import Cause
from tenant_operator.model.foreign_text import one_line
from tenant_operator.model.objects import Object
from tenant_operator.pki.facts import digest_of
from tenant_operator.provisioners.imported.source import ImportProbe, KubeconfigFacts

# It is a server of another maker, and may be none.
PROBE_TIMEOUT_S = 10.0
_MAX_ANSWER_BYTES = 1 << 20
NO_ANSWER = "no API server answers there whose certificate is of the kubeconfig's authority"
"""One text for all ways in which a connection fails."""
# With all that one kubeconfig is refused for.
_MAX_REFUSAL = 500
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_DECODER = msgspec.json.Decoder(dict[str, Any])


def secret_value(secret: Object, key: str) -> bytes:
    """One value of a Secret; empty if it is not base64."""
    data = secret.get("data")
    value = data.get(key) if isinstance(data, dict) else None
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except binascii.Error:
        return b""


def read_kubeconfig(text: bytes) -> tuple[KubeconfigFacts, Access | None]:
    """What is in a kubeconfig, without its keys, and the way in; None for a kubeconfig that is refused."""
    digest = digest_of(text)
    try:
        access = kubeconfig.parse_foreign(text)
    except KubeconfigError as error:
        return KubeconfigFacts(digest, refusal=one_line(error, _MAX_REFUSAL)), None
    facts = KubeconfigFacts(
        digest,
        server=access.server,
        has_credential=bool(access.certificate_pem or access.token),
        has_authority=bool(access.ca_pem),
        files=tuple(one_line(each) for each in access.files),
    )
    return facts, access


async def probe_import(client: Requester) -> ImportProbe:
    """Ask for what identifies the cluster, its version, and what the credential may do."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            return await _asked(client)
    except TimeoutError:
        return ImportProbe(failure=NO_ANSWER)
    except UnreachableError as error:
        return ImportProbe(failure=unreachable_text(error))
    except ApiError as error:
        return ImportProbe(failure=one_line(error))


def unreachable_text(error: UnreachableError) -> str:
    """Why it does not answer, for the author of the VirtualCluster, who may have named any machine that the
    operator reaches, and is to learn of none whether it listens."""
    return one_line(error) if error.cause is Cause.ADDRESS_REFUSED else NO_ANSWER


async def _asked(client: Requester) -> ImportProbe:
    version = _text(await _request(client, "GET", "/version"), "gitVersion")
    everything = {"verb": "*", "group": "*", "version": "*", "resource": "*"}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": everything},
    }
    status = (await _request(client, "POST", _REVIEWS, review)).get("status")
    is_administrator = isinstance(status, dict) and status.get("allowed") is True
    uid = ""
    if is_administrator:
        metadata = (await _request(client, "GET", NAMESPACES.path(None, "kube-system"))).get("metadata")
        uid = _text(metadata if isinstance(metadata, dict) else {}, "uid")
        if not uid:
            return ImportProbe(failure="its Namespace kube-system has no UID")
    return ImportProbe(uid, version, is_administrator)


async def _request(client: Requester, method: str, path: str, body: Object | None = None) -> Object:
    data = None if body is None else msgspec.json.encode(body)
    return decoded(_DECODER, await client.request(method, path, {}, data, limit_bytes=_MAX_ANSWER_BYTES))


def _text(value: Object, key: str) -> str:
    found = value.get(key)
    return one_line(found) if isinstance(found, str) else ""
