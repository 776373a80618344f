# SPDX-License-Identifier: Apache-2.0
"""Kubeconfigs: a safe loader of PyYAML reads the same, and a request with what was read is one request."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import h11
import yaml

from daemonkit.kube import http1
from daemonkit.kube.credentials import CredentialsError, token_of
from daemonkit.kube.kubeconfig import Access, KubeconfigError, parse, server_url
from tests.fuzz.invariants import only
from tests.fuzz.target import FuzzTarget

_DIRECTORY = Path("/d")


def check(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    url = only(KubeconfigError, server_url, text)
    if url is not None:
        _check_url(url)
    access = only(KubeconfigError, parse, data, _DIRECTORY)
    if access is None:
        return
    assert any(_is_same(access, reading) for reading in _readings(data))
    _check_url(access.server)
    assert access.token is None or access.token_file is None
    assert access.ca_pem is None or access.ca_file is None
    has_certificate = bool(access.certificate_pem or access.certificate_file)
    assert has_certificate is bool(access.key_pem or access.key_file)
    assert all(path.is_absolute() and "\0" not in str(path) for path in access.files)
    assert repr(access) == f"Access(server={access.server!r})"
    if access.token_file is None:
        with contextlib.suppress(CredentialsError):  # a token that no header may have
            _check_request(access.server, token_of(access) or "")


def _readings(data: bytes) -> Iterator[dict[str, Any]]:
    """What PyYAML reads with each of its scanners.

    libyaml, which reads most kubeconfigs here, takes tabs that the scanner in Python refuses, and skips byte
    order marks within the text.
    """
    for loader in (yaml.CSafeLoader, yaml.SafeLoader):
        with contextlib.suppress(yaml.YAMLError):
            yield yaml.load(data, Loader=loader)  # noqa: S506 - both make plain values alone


def _is_same(access: Access, theirs: dict[str, Any]) -> bool:
    name = theirs["current-context"]
    context = _named(theirs["contexts"], name)["context"]
    cluster = _named(theirs["clusters"], context.get("cluster", ""))["cluster"]
    namespace = context.get("namespace") or "default"
    return access.namespace == namespace and access.server == server_url(cluster["server"])


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(each for each in entries if each["name"] == name)


def _check_url(url: str) -> None:
    assert server_url(url) == url
    parts = urlsplit(url)
    assert parts.scheme in ("https", "http")
    assert parts.hostname
    _check_request(url, "")


def _check_request(url: str, token: str) -> None:
    parts = urlsplit(url)
    fields = http1.field_lines({"Host": parts.netloc, "Authorization": f"Bearer {token}x"})
    sent = http1.request("GET", f"{parts.path}/api", {}, fields, None)
    server = h11.Connection(h11.SERVER)
    server.receive_data(sent)
    event = server.next_event()
    assert isinstance(event, h11.Request)
    assert len(event.headers) == 2
    assert isinstance(server.next_event(), h11.EndOfMessage)
    assert server.trailing_data[0] == b""


_WHOLE = b"""\
apiVersion: v1
kind: Config
current-context: c
contexts:
- name: c
  context: {cluster: k, user: u, namespace: web}
clusters:
- name: k
  cluster:
    server: https://10.0.0.1:6443/base/
    certificate-authority-data: YWJj
    tls-server-name: kube
users:
- name: u
  user:
    client-certificate: cert.pem
    client-key-data: YWJj
    token: abc.def
    tokenFile: /t/oken
"""
_USER = b"users:\n- name: u\n  user:\n"
TARGET = FuzzTarget(
    check,
    seeds=(
        _WHOLE,
        _WHOLE.replace(b"    tokenFile: /t/oken\n", b""),
        _WHOLE[: _WHOLE.index(_USER)] + _USER + b"    token: abc\n",
        _WHOLE[: _WHOLE.index(_USER)] + _USER + b"    exec: {command: aws}\n",
        _WHOLE.replace(b"    tokenFile: /t/oken\n", b"").replace(b"-data: ", b"-data:\t "),
        b"https://[fd00::1]:6443/x",
        b"[a.b.c]:443",
        b"http://127.0.0.1:8080",
    ),
    tokens=(
        *(
            b"\n",
            b" ",
            b"- ",
            b": ",
            b"'",
            b'"',
            b"|\n",
            b"!!int ",
            b"!!int ''",
            b"!!bool x",
            b"!!float ''",
            b"!!binary x",
        ),
        *(
            b"!!timestamp x",
            b"!!set {a}",
            b"!!omap [a]",
            b"!!python/name:os.system ",
            b"&a ",
            b"*a",
            b"<<: *a\n",
            b"? [a]\n",
        ),
        *(
            b"'\\r\\nX: y'",
            b'"\\r\\nX: y"',
            b'"\\0"',
            b'"\\ud800"',
            b"null",
            b"{}",
            b"[]",
            b"1",
            b"2001-99-99",
            b"0x",
            b"0b",
            b"1:99",
        ),
        *(
            b"https://",
            b"http://",
            b"[",
            b"]",
            b"@",
            b"%",
            b"?",
            b"#",
            b"/",
            b"\\",
            b"localhost",
            b"127.1",
            b"::1",
            b"%zone",
            b"\xc3\xa9",
        ),
        *(
            b"insecure-skip-tls-verify: true\n",
            b"proxy-url: x\n",
            b"token: ",
            b"server: ",
            b"9" * 40,
            b"\xe2\x84\xa1",
            b"\t",
        ),
    ),
    max_bytes=2048,
)
