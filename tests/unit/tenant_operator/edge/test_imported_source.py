# SPDX-License-Identifier: Apache-2.0
"""What is read of the kubeconfigs that others write, and what their API servers are asked."""

from collections.abc import Callable, Mapping

import msgspec
import pytest
import yaml

from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.resources import Status
from daemonkit.remedies import Cause
from tenant_operator.edge.imported_source import NO_ANSWER, probe_import, read_kubeconfig, secret_value
from tenant_operator.model.virtual_cluster import ImportRef
from tenant_operator.pki.facts import digest_of
from tenant_operator.provisioners.imported.source import ImportProbe, KubeconfigFacts, SourceChoice, choose
from tests.unit.tenant_operator.provisioners.imported import secrets_of_others as others
from tests.unit.tenant_operator.provisioners.imported.secrets_of_others import OthersSecret, kubeconfig

ALL = [others.KAMAJI, others.VCLUSTER, others.K3K, others.CLUSTER_API, others.K3S]


def text_of(secret: OthersSecret) -> bytes:
    choice = choose(ImportRef(secret.name), secret.facts, "tenants")
    assert isinstance(choice, SourceChoice)
    return secret_value(secret.object, choice.key)


@pytest.mark.parametrize("secret", ALL)
def test_secrets_of_others_are_read(secret: OthersSecret) -> None:
    found, _ = read_kubeconfig(text_of(secret))
    assert (found.refusal, found.has_authority, found.has_credential, found.files) == ("", True, True, ())
    assert found.server.startswith("https://")


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        (
            kubeconfig(insecure_skip_tls_verify="true"),
            "insecure-skip-tls-verify: the server has to be verified",
        ),
        (kubeconfig(proxy_url="http://x"), "proxy-url: proxies are not supported"),
        (
            kubeconfig("http://10.0.0.9:8080"),
            "plain http is for loopback only: credentials would travel openly",
        ),
        (
            kubeconfig().split("    client-certificate-data")[0] + "    exec: {command: aws}\n",
            "exec: credential plugins are not run by a daemon; use a certificate or a token file",
        ),
        ("a: b", "current-context '' is not among contexts"),
    ],
)
def test_kubeconfigs_that_no_daemon_uses_are_refused(text: str, refusal: str) -> None:
    assert read_kubeconfig(text.encode()) == (KubeconfigFacts(digest_of(text.encode()), refusal), None)


FLAT = "z: &z 1\nl: [" + ",".join("a" * 20_000) + "]\n"
MERGED = "a: &a {" + ", ".join(f"k{i}: 1" for i in range(500)) + "}\nl:\n" + "- {<<: *a}\n" * 500
HOW = "; write it with `kubectl config view --raw --flatten --minify`"


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        (FLAT, "line 1, column 4: anchors and aliases are not read; write it out" + HOW),
        (MERGED, "merged keys are not read" + HOW),
        (f"{kubeconfig()}# {'x' * (64 << 10)}\n", "more than 65536 bytes" + HOW),
        (kubeconfig() + "x: !!bool x\n", "line 20, column 4: tags are not read; remove it" + HOW),
        (kubeconfig(insecure_skip_tls_verify="yes"), None),
        ("[" * 60_000, None),
        ("a: 1\n" * 10_000, None),
        ("\x00", None),
    ],
)
def test_what_takes_a_slow_loader_is_refused(
    text: str, refusal: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyYAML's own loader takes seconds for some KB, without an await."""

    def slow(_: object) -> object:
        raise AssertionError("PyYAML's own loader has read it")

    monkeypatch.setattr(yaml, "safe_load", slow)
    found, access = read_kubeconfig(text.encode())
    assert access is None
    assert found.refusal
    assert found.refusal.isprintable()
    assert refusal in (None, found.refusal)


BAD_HOSTS = [
    "a..b",
    f"{'a' * 64}.x",
    "a." * 127 + "aa",
    "-a",
    "a-",
    "*.a",
    "127.1",
    "2130706433",
    "0x7f.1",
    "1.2.3",
]


@pytest.mark.parametrize(
    "host", [*BAD_HOSTS, ".x", "010.0.0.1", "0x7f000001", "a.0x", "256.0.0.1", "1.2.3.4."]
)
def test_hosts_that_are_no_names_are_refused(host: str) -> None:
    found, access = read_kubeconfig(kubeconfig(f"https://{host}:6443").encode())
    expected = "the server's host is no DNS name and no IP address in its usual form"
    assert (found.refusal, access) == (expected, None)


@pytest.mark.parametrize("name", [*BAD_HOSTS, ".x", "a" * 300, '"a\\0b"', '"\\u00e9"', "a b"])
def test_names_that_tls_refuses_are_refused(name: str) -> None:
    found, access = read_kubeconfig(kubeconfig(tls_server_name=f'"{name.strip(chr(34))}"').encode())
    assert (found.refusal, access) == ("tls-server-name is no DNS name and no IP address", None)


@pytest.mark.parametrize(
    "host", ["acme.tenants.svc", "a_b.c.", "10.0.0.1", "[fd00::1]", "a" * 63, "xn--mnchen-3ya.de"]
)
def test_hosts_that_are_names_are_taken(host: str) -> None:
    found, access = read_kubeconfig(
        kubeconfig(f"https://{host}:6443", tls_server_name=host.strip("[]")).encode()
    )
    assert (found.refusal, found.server, access is None) == ("", f"https://{host}:6443", False)


def test_files_are_named() -> None:
    text = kubeconfig().split("    client-certificate-data")[0]
    text += "    client-certificate: pki/a.crt\n    client-key: /b.key\n"
    found, _ = read_kubeconfig(text.encode())
    assert (found.files, found.has_credential) == (("/pki/a.crt", "/b.key"), False)


@pytest.mark.parametrize("data", [None, 3, {}, {"value": 3}, {"value": "%"}])
def test_a_broken_value_is_empty(data: object) -> None:
    assert secret_value({"data": data}, "value") == b""


class FakeImportedServer:
    """Answers by path; the last part of the path is enough."""

    def __init__(self, **answers: object) -> None:
        self.answers = answers
        self.error: Callable[[str], Exception | None] = lambda _path: None
        self.paths: list[str] = []

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None = None,
        *,
        content_type: str = "application/json",
        limit_bytes: int = 0,
    ) -> bytes:
        assert 0 < limit_bytes <= 1 << 20
        self.paths.append(f"{method} {path}")
        if (error := self.error(path)) is not None:
            raise error
        return msgspec.json.encode(self.answers[path.rpartition("/")[2].replace("-", "_")])


def server(**answers: object) -> FakeImportedServer:
    known: dict[str, object] = {
        "version": {"gitVersion": "v1.34.4"},
        "selfsubjectaccessreviews": {"status": {"allowed": True}},
        "kube_system": {"metadata": {"uid": "u1"}},
    }
    return FakeImportedServer(**{**known, **answers})


@pytest.mark.asyncio
async def test_the_server_is_asked_who_it_is() -> None:
    fake = server()
    assert await probe_import(fake) == ImportProbe("u1", "v1.34.4", is_administrator=True)
    assert fake.paths == [
        "GET /version",
        "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "GET /api/v1/namespaces/kube-system",
    ]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "review", [{}, {"status": 3}, {"status": {"allowed": "true"}}, {"status": {"allowed": False}}]
)
async def test_only_a_clear_answer_makes_an_administrator(review: object) -> None:
    assert await probe_import(server(selfsubjectaccessreviews=review)) == ImportProbe("", "v1.34.4")


@pytest.mark.asyncio
@pytest.mark.parametrize("namespace", [{}, {"metadata": 3}, {"metadata": {"uid": 3}}])
async def test_a_server_without_identity_is_none(namespace: object) -> None:
    found = await probe_import(server(kube_system=namespace))
    assert found == ImportProbe(failure="its Namespace kube-system has no UID")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (UnreachableError("it is loopback", Cause.ADDRESS_REFUSED), "it is loopback"),
        (ApiError(Status(401, "Unauthorized", "who\nare\x1b you")), "401 Unauthorized: who are you"),
        (ApiError(Status(403, "Forbidden", "x" * 1000)), ("403 Forbidden: " + "x" * 1000)[:253]),
    ],
)
async def test_failures_are_one_bounded_line(error: Exception, failure: str) -> None:
    fake = server()
    fake.error = lambda _path: error
    assert await probe_import(fake) == ImportProbe(failure=failure)


@pytest.mark.asyncio
@pytest.mark.parametrize("error", [TimeoutError(), *(UnreachableError("x", each) for each in Cause)])
async def test_all_failed_connections_have_one_text(error: Exception) -> None:
    """The author names the machine, and the operator reaches more than he does."""
    fake = server()
    fake.error = lambda _path: error
    is_judged = isinstance(error, UnreachableError) and error.cause is Cause.ADDRESS_REFUSED
    assert await probe_import(fake) == ImportProbe(failure="x" if is_judged else NO_ANSWER)
