# SPDX-License-Identifier: Apache-2.0
"""Scrapers with a bearer token, over real TLS: what a valid one gets, and how each other is refused."""

import hashlib
import hmac
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.utils import base64url_encode

from devkit.files import replace_file
from tests.cases.client import CaseClient
from tests.cases.daemon import VnAgentProcess
from tests.functional.vnagent.node import DEADLINE_S, NAME, head, reply_of
from tests.functional.vnagent.shop_and_bank import CUT_WITHIN_S, FOLLOW, status_of
from tests.functional.vnagent.test_life import run_agent
from tests.functional.vnagent.token_node import TokenNode, request
from tests.token_issuer import ISSUER, SUBJECT, TokenIssuer, segment
from tests.waiting import wait_until
from vnagent.state import UNKNOWN_LINES_BURST, UNKNOWN_LINES_PER_S

PAGE = "GET /metrics/resource"
IDENTITY = "token:" + hashlib.sha256(f'["{ISSUER}","{SUBJECT}"]'.encode()).hexdigest()
UNKNOWN = (None, "")
SENTENCE = (
    b"vcnode: a valid bearer token is required; ask the operator of this node for its issuer, audience and"
    b" subjects\n"
)
REFUSALS = "vcnode_vnagent_token_refusals_total"


@pytest.fixture
def tokens(tmp_path: Path) -> Iterator[TokenNode]:
    with TokenNode(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenNode]:
    """For tests that change nothing, each from an address of its own."""
    with TokenNode(tmp_path_factory.mktemp("shared")) as running:
        yield running


def answers(tokens: TokenNode, key: str, token: str | None) -> int | None:
    return status_of(tokens.ask(key, PAGE, token))


def refusals(tokens: TokenNode, key: str = "ten-a") -> dict[str, float]:
    """Of a tenant's port, by reason."""
    pattern = re.compile(rf'{REFUSALS}{{reason="([a-z-]+)",tenant="{key}"}}')
    return {
        match[1]: value
        for name, value in tokens.node.daemon.samples().items()
        if (match := pattern.match(name))
    }


# ---- a valid token


def test_a_valid_token_reads_its_tenants_pages(tokens: TokenNode) -> None:
    token = tokens.issuers["ten-a"].token()
    with tokens.client("ten-a") as client:
        for page in ("/metrics/resource", "/pods", "/runningpods/", "/stats/summary"):
            reply = request(client, f"GET {page}", token)
            assert reply is not None
            assert reply.status == 200, page
            assert b"bank" not in reply.body
        reply = request(client, PAGE, token)
        assert reply is not None
        assert b'pod="shop"' in reply.body
        reply = request(client, "GET /healthz", token)
        assert reply is not None
        assert (reply.status, reply.body) == (200, b"ok")
    line = tokens.audit_line(reply)
    assert {name: line[name] for name in ("tenant", "identity", "endpoint", "decision", "reason")} == {
        "tenant": "ten-a",
        "identity": IDENTITY,
        "endpoint": "healthz",
        "decision": "allow",
        "reason": "own-answer",
    }


@pytest.mark.parametrize(
    "line", ["GET /containerLogs/web/shop/app", FOLLOW, "POST /exec/web/shop/app?command=id&output=1"]
)
def test_a_token_reads_no_logs_and_opens_no_stream(shared: TokenNode, line: str) -> None:
    upgrade = ("Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io")
    headers = upgrade if line.startswith("POST") else ()
    reply = shared.ask("ten-a", line, shared.issuers["ten-a"].token(), *headers)
    assert status_of(reply) == 403
    assert shared.audit_line(reply)["reason"] == "role-not-allowed"


def test_the_kubelet_gets_no_token(tokens: TokenNode) -> None:
    token = tokens.issuers["ten-a"].token()
    assert answers(tokens, "ten-a", token) == 200
    exchanges = tokens.node.kubelet.requests("/metrics/")
    assert exchanges
    for each in exchanges:
        assert "authorization" not in {name.lower() for name, _ in each.headers}
        assert token.encode() not in each.head


def test_no_token_is_in_a_log_or_on_a_page(tokens: TokenNode) -> None:
    good, bad = tokens.issuers["ten-a"].token(), tokens.issuers["ten-b"].token()
    assert (answers(tokens, "ten-a", good), answers(tokens, "ten-a", bad)) == (200, 401)
    written = [path.read_text(encoding="utf-8") for path in tokens.node.directory.glob("*.log")]
    written += [(tokens.node.directory / "audit.jsonl").read_text(encoding="utf-8")]
    written += [tokens.node.daemon.get(page)[1] for page in ("/status", "/metrics", "/readyz")]
    for part in (*good.split("."), *bad.split(".")):
        assert not [text for text in written if part in text]


def test_status_lists_the_listeners(shared: TokenNode) -> None:
    assert shared.node.daemon.status()["tokenListeners"] == [
        {"tenant": key, "address": "127.0.0.1", "port": shared.ports[key], "keys": 1}
        for key in ("ten-a", "ten-b")
    ]


# ---- refusals


def changed(**changes: Any) -> Callable[[TokenNode], str]:
    return lambda tokens: tokens.issuers["ten-a"].token(**changes)


def with_header(**header: Any) -> Callable[[TokenNode], str]:
    return lambda tokens: tokens.issuers["ten-a"].sign(tokens.issuers["ten-a"].claims(), **header)


def of_another_issuer(tokens: TokenNode) -> str:
    """Under the name of this tenant's key."""
    return TokenIssuer().sign(tokens.issuers["ten-a"].claims(), kid=tokens.issuers["ten-a"].jwk["kid"])


def unsigned(tokens: TokenNode) -> str:
    issuer = tokens.issuers["ten-a"]
    return f"{segment({'alg': 'none', 'kid': issuer.jwk['kid']})}.{segment(issuer.claims())}.AAAA"


def by_hmac(tokens: TokenNode) -> str:
    issuer = tokens.issuers["ten-a"]
    signed = f"{segment({'alg': 'HS256', 'kid': issuer.jwk['kid']})}.{segment(issuer.claims())}"
    secret = issuer.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    digest = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64url_encode(digest).decode()}"


FAULTS: dict[str, tuple[Callable[[TokenNode], str], str]] = {
    "not a token": (lambda _: "abc", "token-malformed"),
    "huge": (lambda _: "a" * 8193, "token-too-large"),
    "huge claims": (changed(padding="a" * 8000), "token-too-large"),
    "alg none": (unsigned, "token-algorithm"),
    "HMAC with the public key": (by_hmac, "token-algorithm"),
    "another tenant's": (lambda tokens: tokens.issuers["ten-b"].token(), "token-key-unknown"),
    "no kid": (with_header(kid=""), "token-key-unknown"),
    "kid confusion": (of_another_issuer, "token-signature"),
    "critical extension": (with_header(crit=["b64"], b64=True), "token-malformed"),
    "expired": (changed(exp=int(time.time()) - 61), "token-expired"),
    "no exp": (changed(exp=None), "token-malformed"),
    "not yet valid": (changed(nbf=int(time.time()) + 3600), "token-not-yet-valid"),
    "issuer": (changed(iss="https://other.example"), "token-issuer"),
    "audience": (changed(aud=["https://kubernetes.default.svc"]), "token-audience"),
    "subject": (changed(sub="system:serviceaccount:monitoring:default"), "token-subject"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_get_one_answer_and_a_reason_each(tokens: TokenNode, fault: str) -> None:
    make, reason = FAULTS[fault]
    with tokens.client("ten-a") as client:
        reply = request(client, PAGE, make(tokens))
        assert reply is not None
        assert (reply.status, reply.body) == (401, SENTENCE)
        assert reply.values("WWW-Authenticate") == ['Bearer realm="vn-agent"']
        assert client.receive_until_end(DEADLINE_S)
    line = tokens.audit_line(reply)
    assert (line["tenant"], line["identity"]) == UNKNOWN
    assert (line["endpoint"], line["decision"], line["reason"], line["status"]) == (
        "metrics/resource",
        "deny",
        reason,
        401,
    )
    assert refusals(tokens) == {reason: 1.0}
    assert not tokens.node.kubelet.requests("/metrics/")


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ((), "token-missing"),
        (("Authorization: Basic YTpi",), "token-malformed"),
        (("Authorization: Bearer a.b.c", "Authorization: Bearer a.b.c"), "token-malformed"),
        (("Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.YQ",), "token-missing"),
    ],
)
def test_requests_without_one_token_are_refused(
    shared: TokenNode, headers: tuple[str, ...], reason: str
) -> None:
    reply = shared.ask("ten-a", PAGE, None, *headers)
    assert reply is not None
    assert (reply.status, reply.body) == (401, SENTENCE)
    assert shared.audit_line(reply)["reason"] == reason


@pytest.mark.parametrize("line", ["HEAD /metrics/resource", "GET /healthz", "GET /nothing", "GET /configz"])
def test_each_request_needs_a_token(shared: TokenNode, line: str) -> None:
    assert status_of(shared.ask("ten-a", line, None)) == 401


def test_a_request_on_such_a_port_has_16_kib_at_most(shared: TokenNode) -> None:
    reply = shared.ask("ten-a", PAGE, None, "X: " + "a" * 16 * 1024)
    assert status_of(reply) == 431
    with shared.client("ten-a") as client:
        client.send(b"GET /pods HTTP/1.1\r\nX: " + b"a" * 17 * 1024)
        assert status_of(reply_of(client)) == 431


def test_a_client_certificate_is_not_asked_for(shared: TokenNode) -> None:
    """Nor is one an identity: the client has none to send."""
    node = shared.node
    with CaseClient(("127.0.0.1", shared.ports["ten-a"]), node.context("ten-a"), sni=NAME) as client:
        assert client.handshake()
        client.send(head(PAGE))
        assert status_of(reply_of(client)) == 401
    with CaseClient(("127.0.0.1", node.daemon.port), shared.context(), sni=NAME) as client:
        client.handshake()
        assert client.receive_until_end(DEADLINE_S)
        assert client.received == b""


# ---- the port for certificates


def test_an_apiserver_with_a_token_is_refused(tokens: TokenNode) -> None:
    token = tokens.issuers["ten-a"].token()
    for line in (PAGE, "GET /containerLogs/web/shop/app"):
        reply = tokens.node.ask("ten-a", line, f"Authorization: Bearer {token}")
        assert reply is not None
        assert (reply.status, reply.body) == (
            400,
            b"vcnode: this port takes a client certificate and no Authorization header; send one of them\n",
        )
        assert tokens.audit_line(reply)["reason"] == "token-with-certificate"
    assert not tokens.node.kubelet.requests("/containerLogs")


def test_a_token_beside_a_metrics_certificate_is_not_read(tokens: TokenNode) -> None:
    """As metrics-server sends it. The certificate alone is the identity, whatever the token is."""
    tenant = tokens.node.tenants["ten-a"]
    leaf = tenant.authority.issue("metrics-server", usages=("client",))
    path = tokens.node.tenants_directory / "ten-a.yaml"
    document = tenant.document(tenant.leaf, leaf).rpartition("role: apiserver")
    with_both = f"{document[0]}role: metrics{document[2]}"
    tokens.node.daemon.after_reload(lambda: replace_file(path, with_both))
    for token in ("abc", tokens.issuers["ten-b"].token()):
        reply = tokens.node.ask("ten-a", PAGE, f"Authorization: Bearer {token}", leaf=leaf)
        assert reply is not None
        assert reply.status == 200
        assert b'pod="shop"' in reply.body
        assert tokens.audit_line(reply)["identity"] == leaf.spki_sha256
    for each in tokens.node.kubelet.requests("/metrics/"):
        assert "authorization" not in {name.lower() for name, _ in each.headers}


# ---- changes


def test_changed_keys_hold_from_the_next_request_on(tokens: TokenNode) -> None:
    """Also on an open connection, for a token that was verified before."""
    old = tokens.issuers["ten-a"]
    new = tokens.issuers["ten-a"] = TokenIssuer("RS256")
    old_token, new_token = old.token(), new.token()
    with tokens.client("ten-a") as client:
        assert status_of(request(client, PAGE, old_token)) == 200
        assert answers(tokens, "ten-a", new_token) == 401
        tokens.node.daemon.after_reload(lambda: tokens.write_jwks("ten-a", new.jwks(old.jwk)))
        assert status_of(request(client, PAGE, old_token)) == 200
        assert answers(tokens, "ten-a", new_token) == 200
        tokens.node.daemon.after_reload(lambda: tokens.write_jwks("ten-a"))
        assert status_of(request(client, PAGE, old_token)) == 401
    assert answers(tokens, "ten-a", new_token) == 200


def test_an_unusable_key_file_keeps_the_last_good_keys(tokens: TokenNode) -> None:
    daemon, token = tokens.node.daemon, tokens.issuers["ten-a"].token()
    daemon.after_reload(lambda: tokens.write_jwks("ten-a", b"no keys"), result="error")
    assert answers(tokens, "ten-a", token) == 200
    assert daemon.status()["tokenListeners"][0]["problem"] == "is not a JSON Web Key Set"
    daemon.after_reload(lambda: tokens.write_jwks("ten-a"))
    assert "problem" not in daemon.status()["tokenListeners"][0]


def test_a_start_without_keys_serves_other_tenants(tokens: TokenNode) -> None:
    node = tokens.node
    node.daemon.stop()
    tokens.jwks_file("ten-a").unlink()
    checked = run_agent(node.daemon.config, "--check-config")
    assert checked.returncode == 2
    assert f"tokenListeners[0].jwksFile: {tokens.jwks_file('ten-a')}: does not exist" in checked.stderr
    node.daemon.start()
    assert answers(tokens, "ten-a", tokens.issuers["ten-a"].token()) == 401
    assert answers(tokens, "ten-b", tokens.issuers["ten-b"].token()) == 200
    node.daemon.after_reload(lambda: tokens.write_jwks("ten-a"))
    assert answers(tokens, "ten-a", tokens.issuers["ten-a"].token()) == 200


def test_a_start_without_cryptography_serves_tenants(tokens: TokenNode) -> None:
    """The package of vn-agent only recommends it. No token is verified then, and log and check say why."""
    node = tokens.node
    node.daemon.stop()
    # Its import fails as if it were not there.
    hidden = node.directory / "hidden"
    hidden.mkdir()
    (hidden / "cryptography.py").write_text(
        "raise ModuleNotFoundError(name='cryptography')\n", encoding="utf-8"
    )
    problem = "the Python library cryptography is not installed"
    remedy = "install the package vcnode-cryptography, and restart vn-agent"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", str(hidden))
        checked = run_agent(node.daemon.config, "--check-config")
        node.daemon.start()
    text = f"tokenListeners: {problem}, so no token is verified; {remedy}"
    assert (checked.returncode, checked.stderr.count(text)) == (2, 1)
    assert node.daemon.log_tail(100_000).count(remedy) == 1
    assert status_of(node.logs("ten-a", "web", "shop")) == 200
    assert answers(tokens, "ten-a", tokens.issuers["ten-a"].token()) == 401
    assert [each["problem"] for each in node.daemon.status()["tokenListeners"]] == [problem, problem]


def test_a_taken_port_stops_no_tenant(tokens: TokenNode) -> None:
    """Another process has a port at the start. It was once a failed start, and all tenants were cut."""
    node, port, token = tokens.node, tokens.ports["ten-a"], tokens.issuers["ten-a"].token()
    node.daemon.stop()
    problem = "the port cannot be bound: address already in use"
    line = f"tokens of ten-a, port {port}: {problem}; end the process that has it, or change tokenListeners"
    with socket.create_server(("127.0.0.1", port)):
        node.daemon.start()
        assert status_of(node.logs("ten-a", "web", "shop")) == 200
        assert answers(tokens, "ten-b", tokens.issuers["ten-b"].token()) == 200
        assert node.daemon.status()["tokenListeners"] == [
            {"tenant": "ten-a", "address": "127.0.0.1", "port": port, "keys": 1, "problem": problem},
            {"tenant": "ten-b", "address": "127.0.0.1", "port": tokens.ports["ten-b"], "keys": 1},
        ]
        code, text = node.daemon.get("/readyz")
        assert (code, line in text.splitlines()) == (200, True)
    wait_until(lambda: "problem" not in node.daemon.status()["tokenListeners"][0], within_s=DEADLINE_S)
    assert answers(tokens, "ten-a", token) == 200
    assert "tokens of" not in node.daemon.get("/readyz")[1]
    assert node.daemon.log_tail(100_000).count("port for tokens cannot be bound") == 1


def test_a_removed_tenants_connections_end(tokens: TokenNode) -> None:
    """With a verified token. Its port serves nothing until it is registered again."""
    token = tokens.issuers["ten-a"].token()
    path = tokens.node.tenants_directory / "ten-a.yaml"
    with tokens.client("ten-a") as client, tokens.client("ten-b") as other:
        assert status_of(request(client, PAGE, token)) == 200
        assert status_of(request(other, PAGE, tokens.issuers["ten-b"].token())) == 200
        path.unlink()
        assert client.receive_until_end(CUT_WITHIN_S)
        with CaseClient(("127.0.0.1", tokens.ports["ten-a"]), tokens.context(), sni=NAME) as again:
            assert not again.handshake()
        assert status_of(request(other, PAGE, tokens.issuers["ten-b"].token())) == 200
    tokens.node.daemon.after_reload(lambda: tokens.node.write_tenant("ten-a"))
    assert answers(tokens, "ten-a", token) == 200


def test_an_expired_token_is_refused_on_an_open_connection(tmp_path: Path) -> None:
    tokens = TokenNode(tmp_path)
    node = tokens.node
    node.daemon = VnAgentProcess(node.daemon.config, node.daemon.socket, is_clock_movable=True)
    with tokens:
        short = tokens.issuers["ten-a"].token(exp=int(time.time()) + 120)
        with tokens.client("ten-a") as client:
            assert status_of(request(client, PAGE, short)) == 200
            node.daemon.advance(100)
            assert status_of(request(client, PAGE, short)) == 200
            # Beyond the leeway of a minute.
            node.daemon.advance(90)
            reply = request(client, PAGE, short)
            assert reply is not None
            assert (reply.status, reply.body) == (401, SENTENCE)
        line = tokens.audit_line(reply)
        assert (line["tenant"], line["identity"], line["reason"]) == ("ten-a", "", "token-expired")


# ---- many


def test_connections_count_once_their_token_is_verified(tmp_path: Path) -> None:
    limits = {"connectionsPerTenant": 1}
    with TokenNode(tmp_path, limits=limits) as tokens:
        token = tokens.issuers["ten-a"].token()
        with tokens.client("ten-a"), tokens.client("ten-a"), tokens.client("ten-a") as client:
            # These three take nothing from the tenant.
            assert status_of(tokens.node.logs("ten-a", "web", "shop")) == 200
            assert status_of(request(client, PAGE, token)) == 200
            reply = tokens.ask("ten-a", PAGE, token)
            assert status_of(reply) == 429
            assert tokens.audit_line(reply)["reason"] == "too-many-connections"
            assert status_of(tokens.node.logs("ten-a", "web", "shop")) == 429
            assert answers(tokens, "ten-b", tokens.issuers["ten-b"].token()) == 200
        wait_until(lambda: answers(tokens, "ten-a", token) == 200, within_s=DEADLINE_S)


def test_requests_count_in_the_tenants_rate(tmp_path: Path) -> None:
    """Also the first one of each connection."""
    limits = {"requestsPerSecondPerTenant": 1}
    with TokenNode(tmp_path, limits=limits) as tokens:
        token = tokens.issuers["ten-a"].token()
        found = [tokens.ask("ten-a", PAGE, token) for _ in range(40)]
        assert {status_of(reply) for reply in found} == {200, 429}
        refused = next(reply for reply in found if status_of(reply) == 429)
        assert tokens.audit_line(refused)["reason"] == "too-many-requests"


@pytest.mark.slow
def test_a_thousand_bad_tokens_disturb_nobody(tokens: TokenNode) -> None:
    """From one address, each another one. They are not all verified, and verified tokens go on."""
    good = tokens.issuers["ten-a"].token()
    other = tokens.issuers["ten-b"].token()
    assert answers(tokens, "ten-a", good) == 200
    began_s = time.monotonic()
    found: list[int | None] = []

    def flood() -> None:
        found.extend(answers(tokens, "ten-a", of_another_issuer(tokens)) for _ in range(250))

    threads = [threading.Thread(target=flood) for _ in range(4)]
    for thread in threads:
        thread.start()
    served = []
    while any(thread.is_alive() for thread in threads):
        served.append((answers(tokens, "ten-a", good), answers(tokens, "ten-b", other)))
    for thread in threads:
        thread.join()
    assert len(found) == 1000
    assert set(found) == {401, 429}
    assert served
    assert set(served) == {(200, 200)}
    # 10 at once and one each two seconds for the address.
    verified = refusals(tokens)["token-signature"]
    assert verified <= 11 + (time.monotonic() - began_s) / 2
    assert refusals(tokens) == {"token-signature": verified, "too-many-tokens": 1000 - verified}
    assert refusals(tokens, "ten-b") == {}


def test_heads_in_pieces_leave_nothing_counted(tmp_path: Path) -> None:
    """Their first pieces came before their tenant was known, and were once subtracted from its bytes."""
    with TokenNode(tmp_path / "n") as tokens:
        token = tokens.issuers["ten-a"].token()
        whole = head("GET /healthz", f"Authorization: Bearer {token}", "X-Pad: " + "a" * 12_000)
        for _ in range(3):
            with tokens.client("ten-a") as client:
                client.send(whole[:9_000])
                wait_until(lambda: tokens.node.daemon.status()["connections"] == 1, within_s=DEADLINE_S)
                client.send(whole[9_000:])
                reply = reply_of(client)
                assert reply is not None
                assert reply.status == 200
        assert tokens.node.daemon.metric("vcnode_vnagent_buffered_bytes") == 0


def test_unverified_clients_do_not_fill_the_audit_log(tmp_path: Path) -> None:
    """Anyone may connect to a port for tokens. The metric counts them all."""
    count = 400
    with TokenNode(tmp_path / "n") as tokens:
        begun_s = time.monotonic()
        for _ in range(count):
            assert answers(tokens, "ten-a", None) == 401
        most = UNKNOWN_LINES_BURST + UNKNOWN_LINES_PER_S * (time.monotonic() - begun_s) + 1
        assert refusals(tokens) == {"token-missing": float(count)}
        tokens.node.daemon.stop()
        lines = (tokens.node.directory / "audit.jsonl").read_text(encoding="utf-8").count("token-missing")
        assert UNKNOWN_LINES_BURST <= lines <= most
