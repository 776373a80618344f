# SPDX-License-Identifier: Apache-2.0
"""Audit lines that a soak reports."""

import json

import pytest

from tests.soak.audit import audit_problems

OWNERS = {"vault-aa": "key-acme", "vault-bb": "key-globex"}
LINE = {
    "time": "2026-01-02T03:04:05Z",
    "tenant": "key-acme",
    "identity": "ff",
    "endpoint": "containerLogs",
    "namespace": "shop",
    "pod": "vault-aa",
    "container": "app",
    "decision": "allow",
    "reason": "owned",
    "status": 200,
    "requestId": "1",
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"pod": "web", "tenant": "key-globex"}, []),  # all tenants have it
        ({"pod": None}, []),
        ({"tenant": "key-globex", "decision": "deny"}, []),
        (
            {"tenant": "key-globex"},
            ["the audit log has an allowed request of key-globex for a pod of key-acme"],
        ),
    ],
)
def test_an_allowed_request_is_its_owners(changes: dict[str, object], expected: list[str]) -> None:
    assert audit_problems([json.dumps(LINE | changes).encode()], OWNERS) == expected


def test_torn_lines_and_other_fields_are_reported() -> None:
    other = json.dumps({"time": "", "path": "/exec"}).encode()
    assert audit_problems([b'{"time":"20', other], OWNERS) == [
        'an audit line is torn: b\'{"time":"20\'',
        "an audit line has the fields time, path",
    ]
