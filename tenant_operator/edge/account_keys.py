# SPDX-License-Identifier: Apache-2.0
"""By which keys an API server verifies service account tokens, which one signs, and what signed tokens last.

No token is kept: of each only the id of its key is read.
"""

import base64

import msgspec

from daemonkit.kube.answers import decoded
from daemonkit.kube.client import ApiClient
from daemonkit.kube.resources import ListMeta, NameOnly
from tenant_operator.edge.pages import PageReader
from tenant_operator.pki.rotation import ConsumerAnswer

_KEY_SET = "/openid/v1/jwks"
# The controller manager makes it in each namespace.
_TOKEN = "/api/v1/namespaces/kube-system/serviceaccounts/default/token"  # noqa: S105 - a path
# The shortest that the API server signs.
_TOKEN_REQUEST = (
    b'{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":600}}'
)
_SECRETS = "/api/v1/secrets"
_TOKEN_SECRETS = "type=kubernetes.io/service-account-token"  # noqa: S105 - a selector
_PAGE = 100
# A page counts as some of them: of pages of nothing there is an end, too.
_MAX_SECRETS = 2000
_PAGE_SECRETS = 20
_MAX_ANSWER_BYTES = 1 << 20


class _KeyName(msgspec.Struct, frozen=True):
    kid: str = ""


class _PublishedKeys(msgspec.Struct, frozen=True):
    keys: list[_KeyName] = []


class _TokenStatus(msgspec.Struct, frozen=True):
    token: str


class _TokenRequest(msgspec.Struct, frozen=True):
    status: _TokenStatus


class _TokenData(msgspec.Struct, frozen=True):
    token: bytes = b""


class _Secret(msgspec.Struct, frozen=True):
    metadata: NameOnly
    data: _TokenData = _TokenData()


class _Secrets(msgspec.Struct, frozen=True):
    metadata: ListMeta = ListMeta()
    items: list[_Secret] = []


_PUBLISHED_KEYS = msgspec.json.Decoder(_PublishedKeys)
_TOKEN_REQUESTED = msgspec.json.Decoder(_TokenRequest)
_SECRET_PAGE = msgspec.json.Decoder(_Secrets)


async def answer(client: ApiClient) -> ConsumerAnswer:
    """One API server: the keys that it publishes, and the one of a token that it signs now.

    Raises ApiError, UnreachableError, and ValueError for what is no token.
    """
    body = await client.request("GET", _KEY_SET, {}, limit_bytes=_MAX_ANSWER_BYTES)
    published = decoded(_PUBLISHED_KEYS, body).keys
    body = await client.request("POST", _TOKEN, {}, _TOKEN_REQUEST, limit_bytes=_MAX_ANSWER_BYTES)
    signed = decoded(_TOKEN_REQUESTED, body).status.token
    return ConsumerAnswer(frozenset(each.kid for each in published), frozenset({_key_of(signed)}))


async def token_secrets(client: ApiClient) -> dict[str, ConsumerAnswer | None]:
    """Secrets of the tenant with a token that never ends, by their names. Raises as `answer`."""
    found: dict[str, ConsumerAnswer | None] = {}
    reader = PageReader(client, _SECRETS, {"fieldSelector": _TOKEN_SECRETS}, _PAGE)
    token, left = "", _MAX_SECRETS
    while left > 0:
        page = decoded(_SECRET_PAGE, await reader.read(token))
        left -= max(len(page.items), _PAGE_SECRETS)
        for each in page.items:
            text = each.data.token.decode("ascii", "replace")
            if text:
                name = f"{each.metadata.namespace}/{each.metadata.name}"
                found[name] = ConsumerAnswer(uses=frozenset({_key_of(text)}))
        token = page.metadata.continue_
        if not token:
            return found
    # What was not looked at may use any key.
    return {**found, "more": None}


def _key_of(token: str) -> str:
    """The `kid` in a token's header; empty if it has none, as tokens of the tenant's own making."""
    head = token.partition(".")[0]
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)), type=_KeyName).kid
    except (msgspec.MsgspecError, ValueError):
        return ""
