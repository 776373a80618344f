# SPDX-License-Identifier: Apache-2.0
import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from daemonkit.kube.kubeconfig import Access, KubeconfigError, in_cluster, load, parse, server_url

HERE = Path("/etc/kube")


def text(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **top: Any) -> str:
    whole = {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443"} | (cluster or {})}],
        "users": [{"name": "u", "user": user or {}}, {"name": "other", "user": {"token": "no"}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "ns"}}],
    }
    return yaml.safe_dump(whole | top)


def b64(plain: bytes) -> str:
    return base64.b64encode(plain).decode()


@pytest.mark.parametrize(
    ("cluster", "user", "expected"),
    [
        ({}, {}, Access("https://10.0.0.1:6443", namespace="ns")),
        (
            {"certificate-authority": "pki/ca.crt", "tls-server-name": "kubernetes"},
            {"client-certificate": "/run/c.crt", "client-key": "c.key"},
            Access(
                "https://10.0.0.1:6443",
                ca_file=HERE / "pki/ca.crt",
                certificate_file=Path("/run/c.crt"),
                key_file=HERE / "c.key",
                server_name="kubernetes",
                namespace="ns",
            ),
        ),
        (
            {"certificate-authority-data": b64(b"CA"), "certificate-authority": "ignored"},
            {"client-certificate-data": b64(b"CERT"), "client-key-data": b64(b"KEY")},
            Access(
                "https://10.0.0.1:6443", ca_pem=b"CA", certificate_pem=b"CERT", key_pem=b"KEY", namespace="ns"
            ),
        ),
        ({}, {"token": "t"}, Access("https://10.0.0.1:6443", token="t", namespace="ns")),
        (
            {},
            {"token": "t", "tokenFile": "token"},
            Access("https://10.0.0.1:6443", token_file=HERE / "token", namespace="ns"),
        ),
    ],
)
def test_a_kubeconfigs_credentials_are_read(
    cluster: dict[str, Any], user: dict[str, Any], expected: Access
) -> None:
    assert parse(text(cluster, user), HERE) == expected


@pytest.mark.parametrize(
    ("cluster", "user", "top", "reason"),
    [
        ({}, {"exec": {"command": "aws"}}, {}, "exec: credential plugins are not run"),
        ({}, {"auth-provider": {"name": "gcp"}}, {}, "auth-provider: not supported"),
        ({}, {"username": "a", "password": "hunter2"}, {}, "username and password"),
        ({}, {"as": "admin"}, {}, "impersonation"),
        ({"insecure-skip-tls-verify": True}, {}, {}, "insecure-skip-tls-verify"),
        ({"proxy-url": "http://proxy"}, {}, {}, "proxy-url"),
        ({"server": ""}, {}, {}, "no server"),
        ({"server": "http://10.0.0.1"}, {}, {}, "plain http is for loopback only"),
        ({"certificate-authority-data": "!!"}, {}, {}, "certificate-authority-data is not base64"),
        ({}, {"client-certificate": "a"}, {}, "needs its key"),
        ({}, {"client-key-data": b64(b"k")}, {}, "a key its certificate"),
        ({}, {}, {"current-context": "gone"}, "'gone' is not among contexts"),
        ({}, {}, {"current-context": ""}, "is not among contexts"),
        ({}, {}, {"clusters": None}, "cluster 'c' is not there"),
        ({}, {}, {"users": []}, "user 'u' is not there"),
        ({}, {}, {"contexts": "x"}, "not a kubeconfig: Expected `array | null`"),
    ],
)
def test_unsafe_kubeconfigs_are_refused(
    cluster: dict[str, Any], user: dict[str, Any], top: dict[str, Any], reason: str
) -> None:
    with pytest.raises(KubeconfigError, match=reason) as caught:
        parse(text(cluster, user, **top), HERE)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("broken", ["a: [", "\x00", "- 1", "1", "", "a: &a [*a]", "? {}\n: 1"])
def test_other_documents_are_refused(broken: str) -> None:
    with pytest.raises(KubeconfigError):
        parse(broken, HERE)


def test_a_usual_kubeconfig_needs_no_slow_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start of vc-syncer reads one for each tenant: PyYAML's loader took a fifth of its steps."""

    def slow(_: object) -> object:
        raise AssertionError("PyYAML's own loader has read it")

    monkeypatch.setattr(yaml, "safe_load", slow)
    assert parse(text({}, {"token": "t"}), HERE).token == "t"


@pytest.mark.parametrize(
    "cluster",
    [
        "{server: https://10.0.0.1, insecure-skip-tls-verify: yes}",
        "{server: https://10.0.0.1, insecure-skip-tls-verify: !!bool 'true'}",
        "{server: https://10.0.0.1, <<: {insecure-skip-tls-verify: true}}",
        "{server: https://10.0.0.1, insecure-skip-tls-verify: false, insecure-skip-tls-verify: true}",
        "{server: https://10.0.0.1, insecure-skip-tls-verify: &verified true}",
    ],
)
def test_all_of_yaml_is_read(cluster: str) -> None:
    whole = f"""
current-context: x
clusters: [{{name: c, cluster: {cluster}}}]
users: [{{name: u, user: {{token: t}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
"""
    with pytest.raises(KubeconfigError, match="insecure-skip-tls-verify: the server has to be verified"):
        parse(whole, HERE)


@pytest.mark.parametrize("tagged", ["!!bool x", "!!int ''", "!!float ''", "!!timestamp x", "!!int 0b"])
def test_a_tag_that_its_value_does_not_fit_is_refused(tagged: str) -> None:
    """PyYAML's constructors raise errors of five classes (found by `make fuzz TARGETS=kubeconfigs`)."""
    with pytest.raises(KubeconfigError, match=r"not a kubeconfig|not YAML"):
        parse(f"current-context: {tagged}\n", HERE)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://10.0.0.1:6443/", "https://10.0.0.1:6443"),
        ("10.0.0.1:6443", "https://10.0.0.1:6443"),
        ("https://api.example/prefix/", "https://api.example/prefix"),
        # VirtualCluster's form of a name, and the forms that resemble it.
        (
            "https://[apiserver-svc.tenant-1-70b001-test]:6443",
            "https://apiserver-svc.tenant-1-70b001-test:6443",
        ),
        ("https://[10.0.0.1]:6443", "https://10.0.0.1:6443"),
        ("https://[name]", "https://name"),
        ("https://[fd00::1]:6443", "https://[fd00::1]:6443"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_server_urls_are_normalized(url: str, expected: str) -> None:
    assert server_url(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "https://",
        "ftp://host",
        "https://user:password@host",
        "https://host?x=1",
        "https://host#x",
        "https://host:port",
        "https://[name",
        "https://m\u00fcnchen.example",
        "https://host/\u00e9",
        "https://ho st",
        "https://host\r\nX: y",
        "https://ho\x00st",
        "http://example.com",
    ],
)
def test_unsafe_server_urls_are_refused(url: str) -> None:
    with pytest.raises(KubeconfigError) as caught:
        server_url(url)
    assert "password" not in str(caught.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(KubeconfigError, match="/nowhere/kubeconfig: No such file"):
        load("/nowhere/kubeconfig")


def test_relative_paths_count_from_the_files_directory(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(text({"certificate-authority": "ca.crt"}))
    assert load(path).files == (tmp_path / "ca.crt",)


@pytest.mark.parametrize(
    ("host", "server"), [("10.96.0.1", "https://10.96.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_a_pods_service_account_is_used(host: str, server: str) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}
    access = in_cluster(environment, HERE)
    assert access == Access(server, ca_file=HERE / "ca.crt", token_file=HERE / "token")
    with pytest.raises(KubeconfigError, match="not in a cluster"):
        in_cluster({})


def test_repr_holds_no_secret() -> None:
    assert repr(Access("https://a", token="hunter2")) == "Access(server='https://a')"
