# SPDX-License-Identifier: Apache-2.0
"""Who trusts the authorities that rotate, and who shows certificates of which one.

All that a tenant answers is bounded.
"""

import asyncio
import base64
import hashlib
from collections.abc import Mapping

import msgspec

from daemonkit.kube.answers import decoded
from daemonkit.kube.client import ApiClient
from daemonkit.kube.resources import ListMeta, NameOnly
from tenancy import x509
from tenant_operator.edge.control_plane_pods import ComponentPod
from tenant_operator.edge.pages import MAX_PAGE_BYTES, PageReader
from tenant_operator.edge.write_gate import GatedClient
from tenant_operator.model import names
from tenant_operator.model.objects import Object
from tenant_operator.pki.facts import der_of
from tenant_operator.pki.handshake import ServerFlight
from tenant_operator.pki.rotation import ConsumerAnswer

AUTHENTICATION = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
_HEADER_BUNDLE = "requestheader-client-ca-file"
_CLIENT_BUNDLE = "client-ca-file"
_CONFIG_MAPS = "/api/v1/configmaps"
_ROOT_CERTIFICATES = "metadata.name=kube-root-ca.crt"
_ROOT_KEY = "ca.crt"
_PAGE = 500
# Of 100 000 namespaces, with 2 KB of each.
_MAX_PAGES = 200
_MAX_BYTES = 256 << 20
# kube-controller-manager writes a few certificates. What is longer is a tenant's own, and not parsed.
_MAX_BUNDLE_BYTES = 64 << 10
# A rotation that waits for more namespaces names these.
_MAX_NAMESPACES = 20
_MERGE_PATCH = "application/merge-patch+json"
_MAX_ANSWER_BYTES = 1 << 20
_TRUSTED = ("tls.crt", "next.crt", "previous.crt")
_CERTIFICATES = (*_TRUSTED, "former.crt")
_END = b"-----END CERTIFICATE-----"


class RotatingAuthority(msgspec.Struct, frozen=True):
    """The authorities in one Secret: by the DER of their subjects, and as they are, the ids of their keys.

    `trusted` are those that its bundle has. `leaf_issuer` is the key that signed the certificate which a
    program shows as a client and the operator cannot ask for, where there is one. `published_as` is the key
    of what aggregated API servers trust.
    """

    subjects: Mapping[bytes, str]
    certificates: Mapping[bytes, str]
    trusted: frozenset[str] = frozenset()
    former: bytes = b""
    leaf_issuer: str = ""
    published_as: str = _HEADER_BUNDLE

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self.subjects.values())

    def of_server(self, flight: ServerFlight, pod: ComponentPod, files_digest: str) -> ConsumerAnswer:
        """An API server, which names the authorities of its clients. It shows the leaf of its Secret if it
        started with that; else it may show any."""
        trusts = frozenset(self.subjects[each] for each in flight.authorities if each in self.subjects)
        return ConsumerAnswer(trusts, self.shown_by(pod, files_digest))

    def of_flight(self, flight: ServerFlight) -> ConsumerAnswer:
        """A server whose certificate and clients are of the same authority."""
        trusts = frozenset(self.subjects[each] for each in flight.authorities if each in self.subjects)
        issuers = (x509.authority_key_identifier(each) or b"" for each in flight.certificates[:1])
        return ConsumerAnswer(trusts, frozenset(each.hex() for each in issuers))

    def of_started(self, pod: ComponentPod, files_digest: str) -> ConsumerAnswer | None:
        """A program that reads its files once. What a pod of another template has read is not known."""
        if not pod.has_started_with(files_digest):
            return None
        return ConsumerAnswer(self.trusted, frozenset({self.leaf_issuer}))

    def shown_by(self, pod: ComponentPod, files_digest: str) -> frozenset[str]:
        """What a pod shows as a client."""
        if not self.leaf_issuer:
            return frozenset()
        return frozenset({self.leaf_issuer}) if pod.has_started_with(files_digest) else self.ids

    def of_bundle(self, pem: bytes) -> ConsumerAnswer:
        """Who trusts this bundle."""
        found = {self.certificates.get(each) for each in certificates_in(pem)}
        return ConsumerAnswer(frozenset(each for each in found if each is not None))


def read_authority(secret: Object, leaf: Object | None) -> RotatingAuthority:
    """Of the Secrets. Raises ValueError for what is no certificate, KeyError for what is no Secret."""
    data = {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}
    found = [der_of(data[key]) for key in _CERTIFICATES if key in data]
    ids = {each: (x509.subject_key_identifier(each) or b"").hex() for each in found}
    trusted = frozenset(ids[der_of(data[key])] for key in _TRUSTED if key in data)
    issuer = ""
    if leaf is not None:
        certificate = der_of(base64.b64decode(leaf["data"]["tls.crt"]))
        issuer = (x509.authority_key_identifier(certificate) or b"").hex()
    former = der_of(data["former.crt"]) if "former.crt" in data else b""
    subjects = {x509.subject(each): ids[each] for each in found}
    is_cluster = secret["metadata"]["name"] == names.CLUSTER_CA
    return RotatingAuthority(
        subjects, ids, trusted, former, issuer, _CLIENT_BUNDLE if is_cluster else _HEADER_BUNDLE
    )


def certificates_in(pem: bytes) -> list[bytes]:
    """The DER of all certificates in a bundle. Raises ValueError."""
    return [der_of(each.strip() + b"\n" + _END) for each in pem.split(_END)[:-1]]


class _AuthenticationConfigMap(msgspec.Struct, frozen=True):
    """The ConfigMap that a tenant may write, with any text."""

    metadata: NameOnly
    data: dict[str, str] = {}


_AUTHENTICATION = msgspec.json.Decoder(_AuthenticationConfigMap)


async def published(client: ApiClient, authority: RotatingAuthority) -> dict[str, ConsumerAnswer | None]:
    """What aggregated API servers trust. Raises ApiError, UnreachableError, ValueError."""
    body = await client.request("GET", AUTHENTICATION, {}, limit_bytes=_MAX_ANSWER_BYTES)
    bundle = decoded(_AUTHENTICATION, body).data.get(authority.published_as, "")
    return {"": authority.of_bundle(bundle.encode())}


class _RootCertificates(msgspec.Struct, frozen=True):
    metadata: NameOnly
    data: dict[str, str] = {}


class _RootPage(msgspec.Struct, frozen=True):
    metadata: ListMeta = ListMeta()
    items: list[_RootCertificates] = []


async def root_certificates(
    client: ApiClient, authority: RotatingAuthority
) -> dict[str, ConsumerAnswer | None]:
    """What the tenant's pods trust who start now, by namespace where that is not what it is to be.

    Raises ApiError, UnreachableError, ValueError.
    """
    expected = ConsumerAnswer(authority.trusted)
    others: dict[str, ConsumerAnswer | None] = {}
    texts = _RootTexts(authority)
    reader = PageReader(client, _CONFIG_MAPS, {"fieldSelector": _ROOT_CERTIFICATES}, _PAGE)
    token, left_bytes = "", _MAX_BYTES
    for _ in range(_MAX_PAGES):
        body = await reader.read(token, min(MAX_PAGE_BYTES, left_bytes))
        left_bytes -= len(body)
        page = msgspec.json.decode(body, type=_RootPage)
        del body  # it is not held while the texts are parsed
        for each in page.items:
            answer = await texts.answer(each.data.get(_ROOT_KEY, ""))
            if answer != expected:
                others[each.metadata.namespace] = answer
            if len(others) == _MAX_NAMESPACES:
                return {"": expected, **others}
        token = page.metadata.continue_
        if not token:
            return {"": expected, **others}
    return {**others, "more": None}


class _RootTexts:
    """What the texts say that were read last. Most namespaces have the same one, but a tenant may write any.

    Each text is parsed in a step of the event loop of its own.
    """

    def __init__(self, authority: RotatingAuthority) -> None:
        self._authority = authority
        self._known: dict[bytes, ConsumerAnswer] = {}
        """By their digests."""

    async def answer(self, text: str) -> ConsumerAnswer:
        """Who has this text trusts these."""
        pem = text.encode()
        if len(pem) > _MAX_BUNDLE_BYTES:
            return ConsumerAnswer()
        digest = hashlib.sha256(pem).digest()
        found = self._known.get(digest)
        if found is None:
            await asyncio.sleep(0)
            try:
                found = self._authority.of_bundle(pem)
            except ValueError:
                found = ConsumerAnswer()
            if len(self._known) >= _PAGE:
                del self._known[next(iter(self._known))]
            self._known[digest] = found
        return found


async def unpublish(client: GatedClient, authority: RotatingAuthority) -> None:
    """Remove the former authority from what aggregated API servers trust, at the version that was read.

    What is no certificate stays: it is the tenant's, and its readers find no former authority there.
    Raises ApiError, UnreachableError, ValueError.
    """
    if not authority.former:
        raise ValueError("no former authority is to be removed")
    body = await client.request("GET", AUTHENTICATION, {}, limit_bytes=_MAX_ANSWER_BYTES)
    found = decoded(_AUTHENTICATION, body)
    *parts, rest = found.data.get(authority.published_as, "").encode().split(_END)
    whole = [each.strip() + b"\n" + _END for each in parts]
    kept = [each + b"\n" for each in whole if _der_or_none(each) != authority.former]
    patch = {
        "metadata": {"resourceVersion": found.metadata.resource_version},
        "data": {authority.published_as: (b"".join(kept) + rest.strip()).decode()},
    }
    await client.request(
        "PATCH",
        AUTHENTICATION,
        {},
        msgspec.json.encode(patch),
        content_type=_MERGE_PATCH,
        limit_bytes=_MAX_ANSWER_BYTES,
    )


def _der_or_none(pem: bytes) -> bytes | None:
    try:
        return der_of(pem)
    except ValueError:
        return None
