# SPDX-License-Identifier: Apache-2.0
import json
from typing import Any

import pytest

from devkit.syncer.fake_view import TENANT
from syncer.core.objects import Object
from syncer.core.plan import IssueTokens, TokenRequest
from syncer.tokens.documents import (
    IssuedToken,
    is_secret_of,
    issued_token,
    parse_secret,
    pod_tokens,
    refusal_message,
    requests_of,
    secret_of,
    secret_patch,
    token_request,
)
from syncer.tokens.lifetime import TokenLifetime

AT = 1_764_075_600.5
REQUESTS = (TokenRequest("token-0", "", 3607), TokenRequest("token-1", "vault", 7200))
ACTION = IssueTokens("default", "web-0", "uid-web-0", "builder", "web-0-token-1", REQUESTS)
ISSUED = (
    IssuedToken(TokenLifetime("token-0", "", 3607, 3607, AT), "aaa.bbb"),
    IssuedToken(TokenLifetime("token-1", "vault", 7200, 7000, AT), "ccc.ddd"),
)
POD = pod_tokens(ACTION, "vcs-7aad2b-tenant-00-default", ISSUED)
LIFETIMES = json.dumps(
    {
        "pod": "web-0",
        "serviceAccount": "builder",
        "tokens": [
            {
                "key": "token-0",
                "audience": "",
                "expirationSeconds": 3607,
                "grantedSeconds": 3607,
                "issued": AT,
                "expires": "2025-11-25T14:00:07Z",
            },
            {
                "key": "token-1",
                "audience": "vault",
                "expirationSeconds": 7200,
                "grantedSeconds": 7000,
                "issued": AT,
                "expires": "2025-11-25T14:56:40Z",
            },
        ],
    },
    separators=(",", ":"),
)
SECRET: Object = {
    "apiVersion": "v1",
    "kind": "Secret",
    "type": "Opaque",
    "metadata": {
        "name": "web-0-token-1",
        "namespace": "vcs-7aad2b-tenant-00-default",
        "labels": {
            "vcnode.io/pod-tokens": "uid-web-0",
            "tenancy.x-k8s.io/vcname": "tenant-00",
            "tenancy.x-k8s.io/vcnamespace": "vcs",
        },
        "annotations": {
            "tenancy.x-k8s.io/cluster": "vcs-7aad2b-tenant-00",
            "tenancy.x-k8s.io/uid": "uid-web-0",
            "tenancy.x-k8s.io/namespace": "default",
            "tenancy.x-k8s.io/ownerReferences": "null",
            "tenancy.x-k8s.io/vcname": "tenant-00",
            "tenancy.x-k8s.io/vcnamespace": "vcs",
            "vcnode.io/pod-token-lifetimes": LIFETIMES,
        },
    },
    "data": {"token-0": "YWFhLmJiYg==", "token-1": "Y2NjLmRkZA=="},
}


@pytest.mark.parametrize(
    ("audience", "asked_s", "audiences", "seconds"),
    [("", 3607, [], 3607), ("vault", 7200, ["vault"], 7200), ("", 10, [], 600)],
)
def test_token_request(audience: str, asked_s: int, audiences: list[str], seconds: int) -> None:
    assert token_request(audience, asked_s, "web-0", "uid-web-0") == {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "audiences": audiences,
            "expirationSeconds": seconds,
            "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "web-0", "uid": "uid-web-0"},
        },
    }


def response(token: Any = "aaa.bbb", seconds: Any = 3607) -> bytes:  # noqa: S107 - no real token
    value = {"spec": {"expirationSeconds": seconds, "audiences": ["x"]}, "status": {"token": token}}
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("seconds", "granted_s"), [(3607, 3607), (31_536_000, 31_536_000), (0, 3607), (-1, 3607), (1 << 40, 3607)]
)
def test_issued_token(seconds: int, granted_s: int) -> None:
    expected = IssuedToken(TokenLifetime("token-0", "", 3607, granted_s, AT), "aaa.bbb")
    assert issued_token(REQUESTS[0], response(seconds=seconds), AT) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b'{"status":{}}',
        b"[" * 5000,
        response(token=""),
        response(token=5),
        response(token="a b"),
        response(token="a\nb"),
        response(token="\u00e9"),
        response(token="a" * 20_000),
        response(seconds="soon"),
    ],
)
def test_answer_without_a_usable_token(body: bytes) -> None:
    assert issued_token(REQUESTS[0], body, AT) is None


def test_text_of_a_token_is_in_no_repr() -> None:
    assert "aaa" not in repr(ISSUED)
    assert "aaa" not in f"{ISSUED[0]}"
    assert "aaa" not in repr(POD)


def test_secret() -> None:
    assert secret_of(POD, ISSUED, TENANT) == SECRET


def test_patch_of_the_secret() -> None:
    assert secret_patch(POD, ISSUED[1:], "uid-s") == {
        "metadata": {"uid": "uid-s", "annotations": {"vcnode.io/pod-token-lifetimes": LIFETIMES}},
        "data": {"token-1": "Y2NjLmRkZA=="},
    }


def test_state_is_found_in_the_secret() -> None:
    assert parse_secret(SECRET) == POD
    assert requests_of(POD.tokens) == REQUESTS


def changed(labels: Object | None = None, annotations: Object | None = None) -> Object:
    meta = SECRET["metadata"]
    return SECRET | {
        "metadata": meta
        | {
            "labels": meta["labels"] | (labels or {}),
            "annotations": meta["annotations"] | (annotations or {}),
        }
    }


@pytest.mark.parametrize(
    "secret",
    [
        {"metadata": {"name": "x"}},
        changed(labels={"vcnode.io/pod-tokens": ""}),
        changed(annotations={"vcnode.io/pod-token-lifetimes": ""}),
        changed(annotations={"vcnode.io/pod-token-lifetimes": "{}"}),
        changed(
            annotations={"vcnode.io/pod-token-lifetimes": '{"pod":"p","serviceAccount":"s","tokens":[]}'}
        ),
        changed(annotations={"vcnode.io/pod-token-lifetimes": LIFETIMES.replace("3607,", '"x",')}),
        changed(annotations={"vcnode.io/pod-token-lifetimes": "[" * 10_000}),
    ],
)
def test_secret_that_says_nothing_of_tokens(secret: Object) -> None:
    assert parse_secret(secret) is None


def test_whose_a_secret_is() -> None:
    assert is_secret_of(SECRET, POD, TENANT)
    assert not is_secret_of(changed(labels={"vcnode.io/pod-tokens": "other"}), POD, TENANT)
    assert not is_secret_of(changed(annotations={"tenancy.x-k8s.io/cluster": "other"}), POD, TENANT)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            403,
            "no token for service account default/builder:"
            " the tenant's API server forbids TokenRequests (403)",
        ),
        (
            404,
            "no token for service account default/builder:"
            " the tenant has no such service account, or no such pod (404)",
        ),
        (409, "no token for service account default/builder: the tenant's pod was replaced (409)"),
        (500, "no token for service account default/builder: the tenant's API server answers 500"),
    ],
)
def test_refusals_in_our_own_words(code: int, message: str) -> None:
    assert refusal_message("builder", "default", code) == message
