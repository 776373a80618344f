# SPDX-License-Identifier: Apache-2.0
"""Real handshakes in memory test the contexts' behaviour, not their settings."""

import datetime as dt
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.tls.contexts import (
    TlsError,
    check_authorities,
    client_context,
    pem_certificates,
    server_context,
    verified_chain,
)
from devkit.pki import Authority, Leaf, self_signed

NODE = Authority.create("node-ca")
TENANT = Authority.create("tenant-ca")
OTHER = Authority.create("other-ca")
SERVER = NODE.issue("system:node:n1", sans_dns=["n1"], sans_ip=["127.0.0.1"], usages=["server"])
CLIENT = TENANT.issue("apiserver", usages=["client"])

Pair = tuple[ssl.SSLObject, ssl.SSLObject]


def server(tmp_path: Path, *authorities: Authority) -> ssl.SSLContext:
    certificate, key = SERVER.write(tmp_path, "serving")
    return server_context(certificate, key, [each.der for each in authorities])


def client(leaf: Leaf | None = CLIENT, ca: Authority = NODE) -> ssl.SSLContext:
    if leaf is None:
        return client_context(ca.cert_pem)
    return client_context(ca.cert_pem, leaf.cert_pem, leaf.key_pem)


def shake_hands(
    server_: ssl.SSLContext,
    client_: ssl.SSLContext,
    name: str = "n1",
    session: ssl.SSLSession | None = None,
) -> Pair:
    """Run a handshake and one byte each way; return the server's end and the client's."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client_.wrap_bio(down, up, server_hostname=name, session=session)
    far = server_.wrap_bio(up, down, server_side=True)
    steps: list[Callable[[], object]] = [near.do_handshake, far.do_handshake]
    # The client ends first in TLS 1.3: the refusal of its certificate reaches it at its first read.
    steps += [lambda: far.write(b"s"), lambda: near.read(1), lambda: near.write(b"c"), lambda: far.read(1)]
    waiting = 0
    while steps and waiting < 10:
        step = steps.pop(0)
        try:
            step()
            waiting = 0
        except ssl.SSLWantReadError:
            steps.insert(1, step)
            waiting += 1
    assert not steps
    return far, near


def test_a_registered_authoritys_client_has_a_verified_chain(tmp_path: Path) -> None:
    far, near = shake_hands(server(tmp_path, OTHER, TENANT), client())
    assert verified_chain(far) == (CLIENT.der, TENANT.der)
    assert verified_chain(near) == (SERVER.der, NODE.der)
    assert far.version() == "TLSv1.3"
    assert far.selected_alpn_protocol() == near.selected_alpn_protocol() == "http/1.1"


def test_before_the_handshake_there_is_no_chain(tmp_path: Path) -> None:
    far = server(tmp_path, TENANT).wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)
    with pytest.raises(TlsError, match="no verified certificate"):
        verified_chain(far)


def test_unverified_certificates_are_not_in_the_chain(tmp_path: Path) -> None:
    padded = client_context(NODE.cert_pem, CLIENT.cert_pem + OTHER.cert_pem, CLIENT.key_pem)
    far, _ = shake_hands(server(tmp_path, TENANT), padded)
    assert verified_chain(far) == (CLIENT.der, TENANT.der)


LATE = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    "leaf",
    [
        pytest.param(None, id="no certificate"),
        pytest.param(OTHER.issue("apiserver"), id="another authority"),
        pytest.param(self_signed("apiserver"), id="self-signed"),
        pytest.param(TENANT.issue("apiserver", usages=["server"]), id="a server's certificate"),
        pytest.param(TENANT.issue("apiserver", not_before=LATE, not_after=LATE), id="expired"),
        pytest.param(Authority.create("tenant-ca").issue("apiserver"), id="an authority of the same name"),
    ],
)
def test_an_unauthorised_client_is_refused(tmp_path: Path, leaf: Leaf | None) -> None:
    with pytest.raises(ssl.SSLError):
        shake_hands(server(tmp_path, TENANT), client(leaf))


def test_a_server_of_another_authority_or_name_fails(tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=r"self-signed certificate|unable to get"):
        shake_hands(server(tmp_path, TENANT), client(ca=OTHER))
    with pytest.raises(ssl.SSLCertVerificationError, match="n2"):
        shake_hands(server(tmp_path, TENANT), client(), name="n2")
    # A common name does not count (RFC 9525, 2): `system:node:n1` is only in the subject.
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server(tmp_path, TENANT), client(), name="system:node:n1")


def test_compressed_certificates_are_disabled(tmp_path: Path) -> None:
    """Compression would defeat a bound on the bytes of a handshake. Tested by the option bits of OpenSSL 3.2:
    `ssl` does not name them, and older versions lack them."""
    for context in (server(tmp_path, TENANT), client_context(NODE.cert_pem)):
        assert context.options & 1 << 32
        assert context.options & 1 << 33


def test_no_session_can_be_resumed(tmp_path: Path) -> None:
    near_context, far_context = client(), server(tmp_path, TENANT)
    _, near = shake_hands(far_context, near_context)
    assert near.session is None or not near.session.has_ticket
    again, _ = shake_hands(far_context, near_context, session=near.session)
    assert verified_chain(again) == (CLIENT.der, TENANT.der)
    assert far_context.session_stats()["number"] == 0


def tls_1_2(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server that takes TLS 1.2 and a client that speaks nothing later."""
    certificate, key = SERVER.write(tmp_path, "serving")
    far = server_context(certificate, key, [TENANT.der], minimum_version=ssl.TLSVersion.TLSv1_2)
    near = client()
    near.maximum_version = ssl.TLSVersion.TLSv1_2
    return far, near


def test_tls_1_2_is_refused_unless_configured(tmp_path: Path) -> None:
    far_context, near_context = tls_1_2(tmp_path)
    with pytest.raises(ssl.SSLError):
        shake_hands(server(tmp_path, TENANT), near_context)
    far, _ = shake_hands(far_context, near_context)
    assert verified_chain(far) == (CLIENT.der, TENANT.der)


def test_a_resumed_tls_1_2_session_has_no_verified_chain(tmp_path: Path) -> None:
    far_context, near_context = tls_1_2(tmp_path)
    _, near = shake_hands(far_context, near_context)
    far, _ = shake_hands(far_context, near_context, session=near.session)
    assert far.getpeercert(binary_form=True) == CLIENT.der
    with pytest.raises(TlsError, match="the session was resumed"):
        verified_chain(far)


def test_tls_1_2_needs_forward_secrecy(tmp_path: Path) -> None:
    far_context, near_context = tls_1_2(tmp_path)
    far, _ = shake_hands(far_context, near_context)
    cipher = far.cipher()
    assert cipher is not None
    assert cipher[0].startswith("ECDHE-")
    near_context.set_ciphers("AES256-SHA:AES256-GCM-SHA384")
    with pytest.raises(ssl.SSLError):
        shake_hands(far_context, near_context)


def test_no_system_authority_is_trusted(tmp_path: Path) -> None:
    assert server(tmp_path, TENANT).get_ca_certs(binary_form=True) == [TENANT.der]
    assert client().get_ca_certs(binary_form=True) == [NODE.der]


def test_no_authorities_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(TlsError, match="no certificate authority to check clients against"):
        server(tmp_path)


def test_a_bad_authority_is_named_by_its_number() -> None:
    with pytest.raises(TlsError, match="certificate 2 is not an authority"):
        check_authorities([TENANT.der, CLIENT.der])
    with pytest.raises(TlsError, match="certificate 2 is not one that OpenSSL can read"):
        check_authorities([TENANT.der, b"\x30\x03\x02\x01\x00"])
    check_authorities([TENANT.der, OTHER.der, TENANT.der])


def test_inline_credentials_work_like_files(tmp_path: Path) -> None:
    ca = NODE.write(tmp_path, "ca")
    certificate, key = CLIENT.write(tmp_path, "client")
    far, _ = shake_hands(server(tmp_path, TENANT), client_context(ca, certificate, key))
    assert verified_chain(far)[0] == CLIENT.der


def test_a_bad_file_is_named_and_not_quoted(tmp_path: Path) -> None:
    certificate, key = SERVER.write(tmp_path, "serving")
    other_key = CLIENT.write(tmp_path, "client")[1]
    none = tmp_path / "none.pem"
    text = tmp_path / "text.pem"
    text.write_text("MIIEsecret")
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        SERVER.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    )
    for crt, pem, message in (
        (none, key, f"{none}: No such file or directory"),
        (certificate, none, f"{none}: No such file or directory"),
        (certificate, other_key, f"{other_key}: not the key of {certificate}; write both at once"),
        (text, key, f"{text}, {key}: one of them is not a PEM certificate or key, or is cut"),
        (certificate, text, f"{certificate}, {text}: one of them is not a PEM certificate or key, or is cut"),
        (certificate, locked, f"{locked}: the key is encrypted; give one without passphrase"),
    ):
        with pytest.raises(TlsError) as caught:
            server_context(crt, pem, [TENANT.der])
        assert str(caught.value) == message


def test_a_client_contexts_sources_are_checked(tmp_path: Path) -> None:
    none = tmp_path / "none.pem"
    for ca, leaf, key, message in (
        (none, None, None, f"{none}: No such file or directory"),
        (b"x", None, None, "the inline CA: no certificate in it; expected PEM"),
        (CLIENT.cert_pem, None, None, "the inline CA: certificate 1 is not an authority"),
        (NODE.cert_pem, CLIENT.cert_pem, None, "go together"),
        (NODE.cert_pem, CLIENT.cert_pem, SERVER.key_pem, "inline key: not the key of inline certificate"),
    ):
        with pytest.raises(TlsError) as caught:
            client_context(ca, leaf, key)
        assert message in str(caught.value)


def test_pem_text_yields_its_certificates() -> None:
    text = f"# the tenants' CAs\n{TENANT.cert_pem.decode()}\nsubject=CN = x\n{OTHER.cert_pem.decode()}"
    assert pem_certificates(text) == (TENANT.der, OTHER.der)
    assert pem_certificates(text.encode()) == (TENANT.der, OTHER.der)
    assert pem_certificates(text.replace("\n", "\r\n")) == (TENANT.der, OTHER.der)


BEGIN, *BODY, END = TENANT.cert_pem.decode().splitlines()
LINES = [BEGIN, *BODY, END]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "no certificate in it; expected PEM"),
        (["# nothing"], "no certificate in it; expected PEM"),
        (LINES[:-1], "the last certificate has no end line; the file is cut"),
        (LINES[1:], f"line {len(LINES) - 1}: not the begin of a certificate; keep only certificates"),
        ([BEGIN[1:], *BODY, END], "line 1: not the begin of a certificate; keep only certificates"),
        ([BEGIN, BEGIN, *BODY, END], f"line {len(LINES) + 1}: the certificate that ends here is not base64"),
        (
            [BEGIN, *BODY[:-2], END],
            f"line {len(LINES) - 2}: the certificate that ends here is not DER, or is cut",
        ),
        ([BEGIN, "!", *BODY, END], f"line {len(LINES) + 1}: the certificate that ends here is not base64"),
        ([BEGIN, END], "line 2: the certificate that ends here is not DER, or is cut"),
        ([BEGIN, "MAA=", END], "line 3: the certificate that ends here is not DER, or is cut"),
        (
            [*LINES, "-----BEGIN PRIVATE KEY-----"],
            f"line {len(LINES) + 1}: a private key; keep only certificates in this file",
        ),
        (["-----BEGIN X509 CRL-----"], "line 1: not the begin of a certificate; keep only certificates"),
    ],
)
def test_pem_text_with_anything_else_is_refused(lines: list[str], message: str) -> None:
    with pytest.raises(TlsError) as caught:
        pem_certificates("\n".join(lines))
    assert str(caught.value) == message


def test_pem_text_has_a_bound() -> None:
    with pytest.raises(TlsError, match="more than 1 certificates"):
        pem_certificates(TENANT.cert_pem * 2, max_certificates=1)
    with pytest.raises(TlsError, match="larger than 100 bytes"):
        pem_certificates(TENANT.cert_pem, max_bytes=100)
    with pytest.raises(TlsError, match="not PEM text"):
        pem_certificates(TENANT.der)


@given(st.lists(st.sampled_from([*LINES, "", "-----BEGIN", "text", "=", "MAA="]), max_size=12))
def test_any_lines_are_read_or_refused(lines: list[str]) -> None:
    try:
        found = pem_certificates("\n".join(lines))
    except TlsError:
        return
    assert found
    assert all(der[0] == 0x30 for der in found)
