# SPDX-License-Identifier: Apache-2.0
"""Who trusts the authorities that rotate, and who shows certificates of which one."""

import base64
from collections.abc import Mapping

import msgspec

from daemonkit.kube.client import ApiClient
from tenancy import x509
from tenant_operator.edge.control_plane_pods import ComponentPod
from tenant_operator.edge.write_gate import GatedClient
from tenant_operator.model.objects import Object
from tenant_operator.pki.facts import der_of
from tenant_operator.pki.handshake import ServerFlight
from tenant_operator.pki.rotation import ConsumerAnswer

AUTHENTICATION = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
_HEADER_BUNDLE = "requestheader-client-ca-file"
_MERGE_PATCH = "application/merge-patch+json"
_MAX_ANSWER_BYTES = 1 << 20
_CERTIFICATES = ("tls.crt", "next.crt", "previous.crt", "former.crt")
_END = b"-----END CERTIFICATE-----"


class RotatingAuthority(msgspec.Struct, frozen=True):
    """The authorities in one Secret: by the DER of their subjects, and as they are, the ids of their keys.

    `leaf_issuer` is the key that signed the certificate which API servers show as clients, where they show
    one.
    """

    subjects: Mapping[bytes, str]
    certificates: Mapping[bytes, str]
    former: bytes = b""
    leaf_issuer: str = ""

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self.subjects.values())

    def of_server(self, flight: ServerFlight, pod: ComponentPod, files_digest: str) -> ConsumerAnswer:
        """An API server, which names the authorities of its clients. It shows the leaf of its Secret if it
        started with that; else it may show any."""
        trusts = frozenset(self.subjects[each] for each in flight.authorities if each in self.subjects)
        return ConsumerAnswer(trusts, self.shown_by(pod, files_digest))

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
    """Of the Secrets' data. Raises ValueError for what is no certificate."""
    data = {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}
    found = [der_of(data[key]) for key in _CERTIFICATES if key in data]
    ids = {each: (x509.subject_key_identifier(each) or b"").hex() for each in found}
    issuer = ""
    if leaf is not None:
        certificate = der_of(base64.b64decode(leaf["data"]["tls.crt"]))
        issuer = (x509.authority_key_identifier(certificate) or b"").hex()
    former = der_of(data["former.crt"]) if "former.crt" in data else b""
    return RotatingAuthority({x509.subject(each): ids[each] for each in found}, ids, former, issuer)


def certificates_in(pem: bytes) -> list[bytes]:
    """The DER of all certificates in a bundle. Raises ValueError."""
    return [der_of(each.strip() + b"\n" + _END) for each in pem.split(_END)[:-1]]


async def published(client: ApiClient, authority: RotatingAuthority) -> dict[str, ConsumerAnswer | None]:
    """What aggregated API servers trust. Raises ApiError, UnreachableError, ValueError."""
    body = await client.request("GET", AUTHENTICATION, {}, limit_bytes=_MAX_ANSWER_BYTES)
    bundle = (msgspec.json.decode(body).get("data") or {}).get(_HEADER_BUNDLE, "")
    return {"": authority.of_bundle(bundle.encode())}


async def unpublish(client: GatedClient, authority: RotatingAuthority) -> None:
    """Remove the former authority from what aggregated API servers trust, at the version that was read.

    Raises ApiError, UnreachableError, ValueError.
    """
    if not authority.former:
        raise ValueError("no former authority is to be removed")
    body = await client.request("GET", AUTHENTICATION, {}, limit_bytes=_MAX_ANSWER_BYTES)
    found = msgspec.json.decode(body)
    bundle = (found.get("data") or {}).get(_HEADER_BUNDLE, "").encode()
    kept = [
        each.strip() + b"\n" + _END + b"\n"
        for each in bundle.split(_END)[:-1]
        if der_of(each.strip() + b"\n" + _END) != authority.former
    ]
    patch = {
        "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
        "data": {_HEADER_BUNDLE: b"".join(kept).decode()},
    }
    await client.request(
        "PATCH",
        AUTHENTICATION,
        {},
        msgspec.json.encode(patch),
        content_type=_MERGE_PATCH,
        limit_bytes=_MAX_ANSWER_BYTES,
    )
