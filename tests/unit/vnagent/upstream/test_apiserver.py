# SPDX-License-Identifier: Apache-2.0
"""The way to the super API server, from a kubeconfig: what is used, and what is refused with its reason."""

import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml

from daemonkit.tls.contexts import TlsError
from devkit.pki import Authority
from vnagent.upstream.apiserver import load_access

AUTHORITY = Authority.create("super")


def kubeconfig(directory: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    """A kubeconfig beside ca.crt, user.crt, user.key and token."""
    AUTHORITY.write(directory, "ca")
    AUTHORITY.issue("vn-agent", usages=("client",)).write(directory, "user")
    (directory / "token").write_text("from-file\n", encoding="ascii")
    path = directory / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        ),
        encoding="utf-8",
    )
    return path


CLUSTER = {"server": "https://10.0.0.1:6443", "certificate-authority": "ca.crt"}
CERTIFICATE = {"client-certificate": "user.crt", "client-key": "user.key"}


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ({}, ("10.0.0.1", 6443, "", "10.0.0.1", "10.0.0.1:6443", False)),
        ({"server": "https://api.example"}, ("api.example", 443, "", "api.example", "api.example", True)),
        (
            {"server": "https://rancher.example:8443/k8s/clusters/c-1/"},
            ("rancher.example", 8443, "/k8s/clusters/c-1", "rancher.example", "rancher.example:8443", True),
        ),
        (
            {"server": "https://[fd00::1]:6443", "tls-server-name": "api.example"},
            ("fd00::1", 6443, "", "api.example", "[fd00::1]:6443", False),
        ),
    ],
)
def test_address_and_name(tmp_path: Path, cluster: dict[str, Any], expected: tuple[object, ...]) -> None:
    path = kubeconfig(tmp_path, CLUSTER | cluster, CERTIFICATE)
    found = load_access(path)
    assert (
        *(found.host, found.port, found.path, found.server_name, found.authority, found.is_name),
    ) == expected
    files = [path, *(tmp_path / name for name in ("ca.crt", "user.crt", "user.key"))]
    assert (found.token, list(found.files)) == (None, files)


def test_a_token_comes_from_its_file_and_is_not_shown(tmp_path: Path) -> None:
    found = load_access(kubeconfig(tmp_path, CLUSTER, {"tokenFile": "token"}))
    assert found.token == "from-file"
    assert tmp_path / "token" in found.files
    assert "from-file" not in repr(found)


@pytest.mark.parametrize(
    ("cluster", "user", "reason"),
    [
        ({"server": "http://127.0.0.1:8080"}, {}, "the server is not https"),
        ({"server": "https://api.example/a%0d%0aX"}, {}, "characters that requests cannot have"),
        ({"server": "https://api.example/a b"}, {}, "printable ASCII"),
        ({"server": "https://\xe4pi.example"}, {}, "printable ASCII"),
        ({"certificate-authority": ""}, {}, "no certificate-authority: the API server has to be verified"),
        ({"insecure-skip-tls-verify": True}, {}, "insecure-skip-tls-verify"),
        ({"certificate-authority": "user.key"}, {}, "a private key"),
        ({"certificate-authority": "none.crt"}, {}, "No such file"),
        ({}, {"client-certificate": "", "client-key": ""}, "neither a client certificate nor a token"),
        ({}, {"client-key": ""}, "a client certificate needs its key"),
        ({}, {"tokenFile": "none"}, "No such file"),
        ({}, {"token": "two words"}, "characters that no header may have"),
        ({}, {"token": "line\r\nX: y"}, "characters that no header may have"),
        ({}, {"exec": {"command": "aws"}}, "credential plugins"),
        ({}, {"as": "admin"}, "impersonation is not supported"),
    ],
)
def test_what_cannot_be_used(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], reason: str
) -> None:
    path = kubeconfig(tmp_path, CLUSTER | cluster, CERTIFICATE | user)
    with pytest.raises(TlsError) as caught:
        load_access(path)
    assert reason in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "two words" not in str(caught.value)


def test_http_1_is_offered_alone(tmp_path: Path) -> None:
    """A Go server would choose HTTP/2 otherwise."""
    client = load_access(kubeconfig(tmp_path, CLUSTER, CERTIFICATE)).context
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue("api", sans_ip=["10.0.0.1"], usages=("server",)).load_into(server)
    server.set_alpn_protocols(["h2", "http/1.1"])
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname="10.0.0.1")
    far = server.wrap_bio(to_server, to_client, server_side=True)
    for end in (near, far, near, far):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert (near.selected_alpn_protocol(), far.selected_alpn_protocol()) == ("http/1.1", "http/1.1")
