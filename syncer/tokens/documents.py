# SPDX-License-Identifier: Apache-2.0
"""What is sent for tokens, and read back: TokenRequests, and the super Secrets that pods mount. Pure.

A token's text stands in the data of a Secret and nowhere else: no annotation, message or repr has it.
"""

import base64
import datetime as dt
from dataclasses import dataclass, field
from typing import Any

import msgspec

from syncer.core.objects import Object, annotations_of, labels_of, name_of, namespace_of
from syncer.core.plan import IssueTokens, TokenRequest
from syncer.core.tenant_cluster import TenantCluster
from syncer.tokens.lifetime import MAX_EXPIRATION_S, TokenLifetime, bounded_expiration_s
from tenancy import keys

# A Secret holds 1 MiB; a token of a few audiences has 1 KB.
MAX_TOKENS = 32
MAX_TOKEN_CHARACTERS = 16 * 1024


@dataclass(frozen=True, slots=True)
class PodTokens:
    """The tokens of one pod, and the super Secret that has them."""

    namespace: str
    name: str
    uid: str
    service_account: str
    super_namespace: str
    secret_name: str
    tokens: tuple[TokenLifetime, ...]


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token as the tenant's API server issued it."""

    lifetime: TokenLifetime
    text: str = field(repr=False)


class _GrantedSpec(msgspec.Struct, rename="camel"):
    expiration_seconds: int = 0


class _GrantedStatus(msgspec.Struct, rename="camel"):
    token: str = ""

    def __repr__(self) -> str:
        return "_GrantedStatus()"


class _TokenResponse(msgspec.Struct):
    spec: _GrantedSpec = msgspec.field(default_factory=_GrantedSpec)
    status: _GrantedStatus = msgspec.field(default_factory=_GrantedStatus)


class _Lifetime(msgspec.Struct, rename="camel"):
    key: str
    audience: str
    expiration_seconds: int
    granted_seconds: int
    issued: float
    # For people.
    expires: str = ""


class _Lifetimes(msgspec.Struct, rename="camel"):
    pod: str
    service_account: str
    tokens: list[_Lifetime]


def token_request(audience: str, requested_s: int, pod_name: str, pod_uid: str) -> Object:
    """The TokenRequest for a token that is valid as long as the tenant's pod exists.

    Without an audience the token is for the tenant's API server.
    """
    spec: Object = {
        "audiences": [audience] if audience else [],
        "expirationSeconds": bounded_expiration_s(requested_s),
        "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": pod_name, "uid": pod_uid},
    }
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


def issued_token(request: TokenRequest, body: bytes, now_s: float) -> IssuedToken | None:
    """The token of an answer; None if the answer has none that can be used."""
    try:
        found = msgspec.json.decode(body, type=_TokenResponse)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    text = found.status.token
    is_sound = text.isascii() and text.isprintable() and " " not in text
    if not text or len(text) > MAX_TOKEN_CHARACTERS or not is_sound:
        return None
    granted_s = found.spec.expiration_seconds
    if not 0 < granted_s <= MAX_EXPIRATION_S:
        granted_s = bounded_expiration_s(request.expiration_s)
    return IssuedToken(
        TokenLifetime(request.key, request.audience, request.expiration_s, granted_s, now_s), text
    )


def requests_of(tokens: tuple[TokenLifetime, ...]) -> tuple[TokenRequest, ...]:
    """What was requested for these tokens."""
    return tuple(TokenRequest(each.key, each.audience, each.requested_s) for each in tokens)


def pod_tokens(action: IssueTokens, super_namespace: str, issued: tuple[IssuedToken, ...]) -> PodTokens:
    """What is known of a pod's tokens once they are issued."""
    return PodTokens(
        action.namespace,
        action.name,
        action.uid,
        action.service_account,
        super_namespace,
        action.secret_name,
        tuple(each.lifetime for each in issued),
    )


def secret_of(pod: PodTokens, issued: tuple[IssuedToken, ...], tenant: TenantCluster) -> Object:
    """The super Secret of a pod's tokens."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": pod.secret_name,
            "namespace": pod.super_namespace,
            "labels": {
                keys.POD_TOKENS: pod.uid,
                keys.VC_NAME: tenant.vc_name,
                keys.VC_NAMESPACE: tenant.vc_namespace,
            },
            "annotations": {
                keys.CLUSTER: tenant.key,
                keys.UID: pod.uid,
                keys.NAMESPACE: pod.namespace,
                keys.OWNER_REFERENCES: "null",
                keys.VC_NAME: tenant.vc_name,
                keys.VC_NAMESPACE: tenant.vc_namespace,
                keys.POD_TOKEN_LIFETIMES: _lifetimes(pod),
            },
        },
        "data": _data(issued),
    }


def secret_patch(pod: PodTokens, issued: tuple[IssuedToken, ...], secret_uid: str) -> Object:
    """The merge patch of a Secret that has other tokens, or older ones. It is refused for another Secret."""
    return {
        "metadata": {"uid": secret_uid, "annotations": {keys.POD_TOKEN_LIFETIMES: _lifetimes(pod)}},
        "data": _data(issued),
    }


def is_secret_of(secret: Object, pod: PodTokens, tenant: TenantCluster) -> bool:
    """Whether a super Secret is that of this pod's tokens."""
    is_of_pod = labels_of(secret).get(keys.POD_TOKENS) == pod.uid
    return is_of_pod and annotations_of(secret).get(keys.CLUSTER) == tenant.key


def parse_secret(secret: Object) -> PodTokens | None:
    """What a super Secret says of its tokens; None if it is no such Secret, or damaged."""
    uid, annotations = labels_of(secret).get(keys.POD_TOKENS), annotations_of(secret)
    try:
        found = msgspec.json.decode(annotations.get(keys.POD_TOKEN_LIFETIMES, ""), type=_Lifetimes)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not uid or not 0 < len(found.tokens) <= MAX_TOKENS:
        return None
    return PodTokens(
        annotations.get(keys.NAMESPACE, ""),
        found.pod,
        uid,
        found.service_account,
        namespace_of(secret),
        name_of(secret),
        tuple(
            TokenLifetime(each.key, each.audience, each.expiration_seconds, each.granted_seconds, each.issued)
            for each in found.tokens
        ),
    )


def refusal_message(service_account: str, namespace: str, code: int) -> str:
    """Why there is no token, for the tenant. The server's own message may have anything in it."""
    account = f"service account {namespace}/{service_account}"
    match code:
        case 403:
            return f"no token for {account}: the tenant's API server forbids TokenRequests (403)"
        case 404:
            return f"no token for {account}: the tenant has no such service account, or no such pod (404)"
        case 409:
            return f"no token for {account}: the tenant's pod was replaced (409)"
        case _:
            return f"no token for {account}: the tenant's API server answers {code}"


def _lifetimes(pod: PodTokens) -> str:
    value = _Lifetimes(
        pod.name,
        pod.service_account,
        [
            _Lifetime(
                each.key,
                each.audience,
                each.requested_s,
                each.granted_s,
                each.issued_s,
                dt.datetime.fromtimestamp(each.expiry_s(), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            )
            for each in pod.tokens
        ],
    )
    return msgspec.json.encode(value).decode()


def _data(issued: tuple[IssuedToken, ...]) -> dict[str, Any]:
    return {each.lifetime.key: base64.b64encode(each.text.encode()).decode() for each in issued}
