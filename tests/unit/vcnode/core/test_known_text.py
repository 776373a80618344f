# SPDX-License-Identifier: Apache-2.0
"""What has no known, harmless form leaves a text, and what follows the key of a secret."""

import base64
import hashlib
import json
from collections.abc import Callable

import pytest

from vcnode.core.known_text import MAX_DEPTH, REMOVED, Removals, known_document, known_log, known_text

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"
PEM = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIA+x\n-----END EC PRIVATE KEY-----"

# Each names a secret; a password may look like anything.
SECRET_KEYS = (
    *("password", "db_password", "clientSecret", "token", "bearerToken", "AWS_SECRET_ACCESS_KEY"),
    *("client-key-data", "certificate-authority-data", "apiKey", "api_key", "Authorization", "privateKey"),
)
SECRETS = (
    "hunter",
    "12345678",
    "/etc/x",
    "[a",
    "true!",
    "null-and-void",
    "{x",
    "p4ss",
    "a b c",
    "Tr0ub4dor&3",
)


@pytest.mark.parametrize(
    "text",
    [
        "pod web-7d9c5b6f8-x2x9z of 10.0.0.1:443 is not ready",
        "fe80::1%eth0 and 2001:db8::1/64",
        "certificate expired at 2026-11-28T19:00:00Z",
        'vcnode_syncer_pod_tokens_total{result="ok",le="0.005"} 3.5',
        "https://kubernetes.default.svc:443/api/v1/pods answered 503",
        "tokenFile: /var/run/secrets/token",
        "/etc/vcnode/tenants/acme.yaml: not readable: Permission denied",
        "HttpError: the head of the reply is too large (65536 bytes)",
        "request 3e2f1a00-0000-4000-8000-00aa11bb22cc: shop/web-0",
        "ExecMainStatus=0",
        "containerd github.com/containerd/containerd 1.7.20 v1alpha1",
    ],
)
def test_what_daemons_write_stays(text: str) -> None:
    assert known_text(Removals(), text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"error: {JWT} expired", f"error: {REMOVED} expired"),
        ("https://:pw@host/x and https://user:pw@host", f"{REMOVED} and {REMOVED}"),
        ("sent Bearer abc to it", f"sent Bearer{REMOVED}"),
        ('{"log": "{\\"token\\":\\"x\\"}"}', f'{{"log": "{{\\"token{REMOVED}'),
        ("joined with abcdef.0123456789abcdef", f"joined with {REMOVED}"),
        ("password: |", f"password:{REMOVED}"),
        ("caf\u00e9 \x1b[0m", "caf? ?[0m"),
    ],
)
def test_what_has_another_form_is_removed(text: str, expected: str) -> None:
    assert known_text(Removals(), text) == expected


@pytest.mark.parametrize("key", SECRET_KEYS)
@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    "form",
    ["{k}: {v}", "{k}={v}", '"{k}": "{v}"', '\\"{k}\\":\\"{v}\\"', "{k} = {v}", "--{k}={v}", "'{k}':'{v}'"],
)
def test_nothing_stays_behind_the_key_of_a_secret(key: str, secret: str, form: str) -> None:
    text = "started with " + form.format(k=key, v=secret)
    found = known_text(Removals(), text)
    assert secret not in found
    assert found.startswith("started with ")


@pytest.mark.parametrize("key", SECRET_KEYS)
@pytest.mark.parametrize("value", [*SECRETS, 12345678, 1.5, True, ["a"], {"inner": "x"}])
def test_a_document_has_no_value_of_a_secret(key: str, value: object) -> None:
    removals = Removals()
    assert known_document(removals, {"spec": [{key: value}]}) == {"spec": [{key: REMOVED}]}
    assert removals.count == 1


def test_a_document_keeps_what_is_no_secret() -> None:
    document = {
        "tokenFile": "/var/run/token",
        "tokenListeners": [{"port": 10551, "tenant": "acme"}],
        "tokens": 3,
        "digest": "sha256:" + "ab" * 32,
        "secretName": "vc-syncer",
        "password": None,
    }
    assert known_document(Removals(), document) == document
    assert known_document(Removals(), {"digest": "x" * 40, "no name": 1}) == {"digest": REMOVED, REMOVED: 1}


def test_deep_documents_end() -> None:
    value: object = "x"
    for _ in range(200):
        value = {"a": [value]}
    assert REMOVED in json.dumps(known_document(Removals(), value))
    assert json.dumps(known_document(Removals(), value)).count("[") <= MAX_DEPTH + 1


def test_of_a_log_only_lines_of_a_known_writer_stay() -> None:
    ours = '2026-11-28T19:00:00+0000 node-1 vn-agent[12]: {"level": "error", "error": "x", "token": 1}'
    lines = [
        ours,
        "2026-11-28T19:00:00+0000 node-1 systemd[1]: vn-agent.service: Failed with result exit-code.",
        "2026-11-28T19:00:00+0000 node-1 vn-agent[12]: password is hunter",
        "  hunter",
        '2026-11-28T19:00:00+0000 node-1 vn-agent[12]: {"half": }',
        "",
    ]
    assert known_log(Removals(), "\n".join(lines)).split("\n") == [
        ours.replace('"token": 1', f'"token": "{REMOVED}"'),
        lines[1],
        f"[a line of {len(lines[2])} characters removed]",
        "[a line of 8 characters removed]",
        f"2026-11-28T19:00:00+0000 node-1 vn-agent[12]: {REMOVED}",
        "",
    ]


def test_keys_and_certificates_leave() -> None:
    assert "MHcCAQEEIA" not in known_text(Removals(), PEM)
    assert "MHcCAQEEIA" not in json.dumps(known_document(Removals(), {"key": PEM}))


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode, base64.b32encode, bytes.hex])
def test_random_bytes_leave(encode: Callable[[bytes], bytes | str]) -> None:
    for number in range(500):
        encoded = encode(hashlib.sha256(bytes([number % 256, number // 256])).digest()[:18])
        text = encoded if isinstance(encoded, str) else encoded.decode()
        assert text not in known_text(Removals(), f"sent {text} to it")


def test_long_texts_take_linear_time() -> None:
    for text in (
        "a." * 200_000,
        "-" * 400_000,
        "token" * 80_000,
        "://" * 130_000,
        "a/" * 200_000,
        "=" * 300_000,
    ):
        assert known_text(Removals(), text) is not None
