# SPDX-License-Identifier: Apache-2.0
"""A node's root for `vcnode init`, and how OpenSSL and TLS judge what it has written there."""

import contextlib
import os
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from devkit.pki import Authority
from vcnode.__main__ import main

USERS = ("vn-agent", "kubeproxy-ext", "dnsconfig")
NODE = ("--node-name", "node-7", "--address", "10.0.0.17", "--server", "https://10.0.0.1:6443")


class NodeRoot:
    """A node's root with the packages of four daemons, and an operator's authorities."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self.root = directory / "node"
        self.ca = directory / "ca"
        self._capsys = capsys
        (self.root / "etc").mkdir(parents=True)
        (self.root / "usr/bin").mkdir(parents=True)
        lines = [f"{user}:x:{os.geteuid()}:{os.getegid()}::/:/bin/false\n" for user in USERS]
        (self.root / "etc/passwd").write_text("".join(lines))
        for daemon in (*USERS, "kata-bridge"):
            (self.root / "usr/bin" / daemon).touch()
        self.super_ca = Authority.create("super").write(directory, "super-ca")
        self.kubelet_ca = Authority.create("kubelet").write(directory, "kubelet-ca")

    def run(self, *words: object) -> tuple[int, str, str]:
        """Exit code, output, and errors."""
        self._capsys.readouterr()
        code = main(["init", *(str(word) for word in words)])
        printed = self._capsys.readouterr()
        return code, printed.out, printed.err

    def node(self, *words: object) -> tuple[int, str, str]:
        trusted = ("--super-ca", self.super_ca, "--kubelet-ca", self.kubelet_ca)
        return self.run("node", "--root", self.root, *NODE, *trusted, *words)

    def init(self, *words: object) -> str:
        code, out, err = self.node("--ca-directory", self.ca, *words)
        assert (code, err) == (0, "")
        return out

    def files(self) -> Mapping[str, bytes]:
        """All files of the node but its users and programs."""
        below = self.root / "etc/vcnode"
        return {
            str(path.relative_to(below)): path.read_bytes() for path in below.rglob("*") if path.is_file()
        }


def verify(authority: Path, certificate: Path, purpose: str, *words: str) -> None:
    """As OpenSSL verifies it, strictly."""
    argv = [
        "openssl",
        "verify",
        "-x509_strict",
        "-purpose",
        purpose,
        "-CAfile",
        str(authority),
        *words,
        str(certificate),
    ]
    subprocess.run(argv, check=True, capture_output=True)


def common_name_of_client(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str:
    """Of the client that the server has verified, after a handshake in memory. Raises SSLError."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for end in (*ends, *ends):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    subject = ends[1].getpeercert()
    assert subject is not None
    return dict(pairs[0] for pairs in subject["subject"])["commonName"]  # type: ignore[misc] # typeshed's union
