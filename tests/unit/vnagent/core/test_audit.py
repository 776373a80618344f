# SPDX-License-Identifier: Apache-2.0
"""Audit lines, whole."""

import json

import pytest

from devkit.audit_fields import AUDIT_FIELDS
from tenancy.tenant import Role
from vnagent.core import audit, replies
from vnagent.core.access import Caller
from vnagent.core.audit import ALLOWED, HOP_FAILURES, identity_of, render
from vnagent.core.head import parse_request_head
from vnagent.core.requests import Endpoint, Refusal, Request, parse

CALLER = Caller("ten-a", Role.APISERVER, "ab" * 32)
UNIDENTIFIED = Caller(None, None, "")
AT = "2026-11-20T16:00:00.123Z"


def request(line: str, *lines: str) -> Request:
    return parse(parse_request_head("\r\n".join([f"{line} HTTP/1.1", "Host: a", *lines]).encode()))


LOGS = request("GET /containerLogs/web/shop/app?limitBytes=77")
EXEC = request(
    "POST /exec/web/shop/app?command=cat&command=secret",
    *("Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io"),
    "Authorization: Bearer secret",
)
FORWARD = request(
    "POST /portForward/web/shop",
    *("Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: portforward.k8s.io"),
)


@pytest.mark.parametrize(
    ("caller", "request_", "reason", "status", "expected"),
    [
        (
            CALLER,
            LOGS,
            "owned",
            200,
            b'"tenant":"ten-a","identity":"%s","endpoint":"containerLogs","namespace":"web","pod":"shop",'
            b'"container":"app","decision":"allow","reason":"owned","status":200',
        ),
        (
            CALLER,
            EXEC,
            "owned",
            101,
            b'"tenant":"ten-a","identity":"%s","endpoint":"exec","namespace":"web","pod":"shop",'
            b'"container":"app","decision":"allow","reason":"owned","status":101',
        ),
        (
            CALLER,
            FORWARD,
            "no-such-pod-of-tenant",
            404,
            b'"tenant":"ten-a","identity":"%s","endpoint":"portForward","namespace":"web","pod":"shop",'
            b'"container":null,"decision":"deny","reason":"no-such-pod-of-tenant","status":404',
        ),
        (
            CALLER,
            LOGS,
            "kubelet-unreachable",
            502,
            b'"tenant":"ten-a","identity":"%s","endpoint":"containerLogs","namespace":"web","pod":"shop",'
            b'"container":"app","decision":"allow","reason":"kubelet-unreachable","status":502',
        ),
        (
            CALLER,
            request("GET /pods"),
            "own-view",
            200,
            b'"tenant":"ten-a","identity":"%s","endpoint":"pods","namespace":null,"pod":null,'
            b'"container":null,"decision":"allow","reason":"own-view","status":200',
        ),
        (
            CALLER,
            request("GET /logs/secret"),
            "endpoint-denied",
            403,
            b'"tenant":"ten-a","identity":"%s","endpoint":"denied","namespace":null,"pod":null,'
            b'"container":null,"decision":"deny","reason":"endpoint-denied","status":403',
        ),
        (
            CALLER,
            None,
            "malformed-head",
            400,
            b'"tenant":"ten-a","identity":"%s","endpoint":"malformed","namespace":null,"pod":null,'
            b'"container":null,"decision":"deny","reason":"malformed-head","status":400',
        ),
    ],
)
def test_lines(caller: Caller, request_: Request | None, reason: str, status: int, expected: bytes) -> None:
    line = render(AT, identity_of(caller), request_, reason, status, "0f-1")
    spki = b"ab" * 32
    assert line == b'{"time":"%s",%s,"requestId":"0f-1"}\n' % (AT.encode(), expected % spki)


def test_a_line_of_an_unregistered_caller() -> None:
    line = render(AT, identity_of(UNIDENTIFIED), None, "unregistered-identity", 403, "0f-2")
    assert line == (
        b'{"time":"2026-11-20T16:00:00.123Z","tenant":null,"identity":"","endpoint":"malformed",'
        b'"namespace":null,"pod":null,"container":null,"decision":"deny",'
        b'"reason":"unregistered-identity","status":403,"requestId":"0f-2"}\n'
    )


def test_a_line_has_no_path_query_or_header() -> None:
    """The contract's fields and no other; no command, query, header or path."""
    line = render(AT, identity_of(CALLER), EXEC, "owned", 101, "0f-3")
    assert tuple(json.loads(line)) == AUDIT_FIELDS
    assert b"secret" not in line
    assert b"command" not in line


KUBELET_FAILURES = {reason for reason in replies.TEXTS if reason.startswith("kubelet-")}


@pytest.mark.parametrize("reason", sorted({*ALLOWED, *HOP_FAILURES, *KUBELET_FAILURES}))
def test_an_allowed_request_that_failed_is_an_allow(reason: str) -> None:
    assert json.loads(render(AT, identity_of(CALLER), LOGS, reason, 200, "x"))["decision"] == "allow"


@pytest.mark.parametrize("endpoint", list(Endpoint))
def test_a_denial_of_any_endpoint(endpoint: Endpoint) -> None:
    found = json.loads(render(AT, identity_of(CALLER), Refusal(endpoint, 400, "x"), "x", 400, "x"))
    assert (found["endpoint"], found["decision"]) == (endpoint.value, "deny")


def test_missing_pods_have_one_reason_everywhere() -> None:
    assert replies.MISSING == "no-such-pod-of-tenant"
    assert replies.MISSING not in audit.HOP_FAILURES
