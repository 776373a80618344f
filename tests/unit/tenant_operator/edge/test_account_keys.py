# SPDX-License-Identifier: Apache-2.0
"""Which keys an API server publishes and signs by; which Secrets have tokens that never end."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tenant_operator.edge import account_keys
from tenant_operator.pki.rotation import ConsumerAnswer
from tests.unit.tenant_operator.edge.api_answers import FakeAnswers

pytestmark = pytest.mark.asyncio

TOKEN = "POST /api/v1/namespaces/kube-system/serviceaccounts/default/token"


def token_of(kid: str) -> str:
    head = base64.urlsafe_b64encode(json.dumps({"alg": "ES256", "kid": kid}).encode()).decode().rstrip("=")
    return f"{head}.e30.c2ln"


def secret(name: str, text: str) -> dict[str, Any]:
    data = {"token": base64.b64encode(text.encode()).decode()} if text else {}
    return {"metadata": {"namespace": "shop", "name": name}, "data": data}


async def test_an_api_server_publishes_and_signs() -> None:
    client = FakeAnswers(
        {
            "GET /openid/v1/jwks": {"keys": [{"kid": "a", "kty": "EC"}, {"kid": "b"}]},
            TOKEN: {"status": {"token": token_of("a")}},
        }
    )
    found = await account_keys.answer(client)  # type: ignore[arg-type]
    assert found == ConsumerAnswer(frozenset({"a", "b"}), frozenset({"a"}))


async def test_secrets_with_tokens_are_named() -> None:
    pages: list[object] = [
        {"metadata": {"continue": "next"}, "items": [secret("old", token_of("a")), secret("empty", "")]},
        {"metadata": {}, "items": [secret("own", "not-a-token")]},
    ]
    client = FakeAnswers({"GET /api/v1/secrets": pages})
    assert await account_keys.token_secrets(client) == {  # type: ignore[arg-type]
        "shop/old": ConsumerAnswer(uses=frozenset({"a"})),
        "shop/own": ConsumerAnswer(uses=frozenset({""})),
    }
    assert [params.get("continue") for _, params in client.requests] == [None, "next"]


async def test_more_secrets_than_are_read_are_unknown() -> None:
    page = {"metadata": {"continue": "next"}, "items": []}
    client = FakeAnswers({"GET /api/v1/secrets": page})
    assert await account_keys.token_secrets(client) == {"more": None}  # type: ignore[arg-type]
    assert len(client.requests) == 100
