# SPDX-License-Identifier: Apache-2.0
import datetime as dt
import ipaddress
from collections.abc import Iterable
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from daemonkit.tls import issuing
from devkit.pki import Authority, Key, Leaf, certificate_builder, common_name, new_key
from vcnode.core import node_certificates
from vcnode.core.init_plan import NodeDaemon, NodeSettings
from vcnode.core.node_certificates import KeyPair, PairState, authority_problems, pair_status
from vcnode.terminal import ToolError

NOW = dt.datetime(2027, 3, 1, 12, tzinfo=dt.UTC)
SPAN: dict[str, Any] = {"not_before": NOW - dt.timedelta(days=1), "not_after": NOW + dt.timedelta(days=300)}
NODE = NodeSettings("node-1", "10.0.0.11", "https://10.0.0.1:6443", tuple(NodeDaemon))
SERVING, KUBELET, BRIDGE, *_ = NODE.certificates()
AUTHORITY = Authority.create("clients", **SPAN)
USER = {"organization": "vcnode:kata-bridges", "usages": ("client",)}


def pair(leaf: Leaf) -> KeyPair:
    return KeyPair(leaf.cert_pem, leaf.key_pem)


def bridge(**changed: Any) -> KeyPair:
    return pair(
        AUTHORITY.issue(changed.pop("name", "vcnode:kata-bridge:node-1"), **{**USER, **SPAN, **changed})
    )


def serving(**changed: Any) -> KeyPair:
    names = {"sans_dns": ["node-1"], "sans_ip": ["10.0.0.11"], "usages": ("server",)}
    return pair(AUTHORITY.issue("any", **{**names, **SPAN, **changed}))


def test_a_pair_as_asked_is_valid() -> None:
    status = pair_status(bridge(), BRIDGE, AUTHORITY.certificate, NOW)
    assert (status.state, status.reason) == (PairState.VALID, "")
    more = serving(sans_dns=["node-1", "other"], sans_ip=["10.0.0.11", "10.0.0.12"])
    assert pair_status(more, SERVING, None, NOW).state is PairState.VALID


@pytest.mark.parametrize(
    ("found", "spec", "reason"),
    [
        (
            bridge(name="vcnode:kata-bridge:node-2"),
            BRIDGE,
            "its subject is CN=vcnode:kata-bridge:node-2,O=vcnode:kata-bridges, not"
            " CN=vcnode:kata-bridge:node-1",
        ),
        (
            bridge(organization="system:masters"),
            BRIDGE,
            "its subject is CN=vcnode:kata-bridge:node-1,O=system:masters, expected O=vcnode:kata-bridges",
        ),
        (bridge(usages=("server",)), BRIDGE, "its extended key usage does not allow clients"),
        (serving(sans_ip=["10.0.0.12"]), SERVING, "it is not valid for 10.0.0.11"),
        (serving(sans_dns=[]), SERVING, "it is not valid for node-1"),
        (serving(usages=("client",)), SERVING, "its extended key usage does not allow serving"),
    ],
)
def test_a_pair_for_something_else_is_different(found: KeyPair, spec: Any, reason: str) -> None:
    status = pair_status(found, spec, AUTHORITY.certificate, NOW)
    assert (status.state, status.reason) == (PairState.DIFFERENT, reason)


def test_a_pair_of_another_authority_is_different() -> None:
    other = Authority.create("clients", **SPAN)
    status = pair_status(bridge(), BRIDGE, other.certificate, NOW)
    assert (status.state, status.reason) == (
        PairState.DIFFERENT,
        "another authority issued it, not CN=clients",
    )


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (KeyPair(b"", b""), "it has no readable PEM certificate"),
        (KeyPair(bridge().certificate_pem, b"x"), "it has no readable PEM key"),
        (KeyPair(bridge().certificate_pem, bridge().key_pem), "the key is not that of the certificate"),
        (bridge(not_after=NOW), "it expired on 2027-03-01"),
        (bridge(not_before=NOW + dt.timedelta(days=1)), "it is not valid before 2027-03-02 12:00 UTC"),
        (
            bridge(not_before=NOW - dt.timedelta(days=20), not_after=NOW + dt.timedelta(days=10)),
            "it expires on 2027-03-11",
        ),
    ],
)
def test_a_pair_near_its_end_is_renewable(found: KeyPair, reason: str) -> None:
    status = pair_status(found, BRIDGE, AUTHORITY.certificate, NOW)
    assert (status.state, status.reason) == (PairState.RENEWABLE, reason)


def test_a_pair_is_renewed_in_the_last_third() -> None:
    life = {"not_before": NOW - dt.timedelta(days=20), "not_after": NOW + dt.timedelta(days=10, seconds=3)}
    assert pair_status(bridge(**life), BRIDGE, None, NOW).state is PairState.VALID


def test_keys_are_never_printed() -> None:
    assert "PRIVATE" not in repr(bridge())


def authority(
    *extensions: tuple[x509.ExtensionType, bool], key: Key | None = None, **span: dt.datetime
) -> tuple[x509.Certificate, bytes]:
    own = key or new_key()
    name = common_name("own")
    builder = certificate_builder(
        name, name, own, span.get("not_before", SPAN["not_before"]), span.get("not_after", SPAN["not_after"])
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    leaf = Leaf.of(builder.sign(own, hashes.SHA256()), own)
    return x509.load_der_x509_certificate(leaf.der), leaf.key_pem


CA = (x509.BasicConstraints(ca=True, path_length=0), True)
SIGNS = (issuing.authority_usage(), True)


def constraints(
    *, permitted: Iterable[x509.GeneralName] = (), excluded: Iterable[x509.GeneralName] = ()
) -> tuple[x509.ExtensionType, bool]:
    return x509.NameConstraints(list(permitted) or None, list(excluded) or None), True


def network(text: str) -> x509.IPAddress:
    return x509.IPAddress(ipaddress.ip_network(text))


NOT_SIGNING = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        (authority(CA, SIGNS), []),
        (authority(), ["it is not an authority's certificate (basic constraints CA:TRUE)"]),
        (authority(CA, (NOT_SIGNING, True)), ["its key usage does not allow signing certificates"]),
        (authority(CA, not_after=NOW), ["it expired on 2027-03-01"]),
        (
            authority(CA, not_before=NOW + dt.timedelta(hours=1)),
            ["it is not valid before 2027-03-01 13:00 UTC"],
        ),
        ((authority(CA)[0], authority(CA)[1]), ["the key is not that of the certificate"]),
        (
            authority(CA, (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), False)),
            ["its extended key usage does not allow serving certificates (vn-agent-serving)"],
        ),
        (authority(CA, (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE]), False)), []),
        (authority(CA, constraints(permitted=[network("10.0.0.0/24")])), []),
        (
            authority(CA, constraints(permitted=[network("10.1.0.0/24"), x509.DNSName("node-1")])),
            ["its name constraints exclude 10.0.0.11 (vn-agent-serving)"],
        ),
        (
            authority(CA, constraints(excluded=[x509.DNSName("node-1")])),
            ["its name constraints exclude node-1 (vn-agent-serving)"],
        ),
        (
            authority(CA, constraints(permitted=[x509.DirectoryName(common_name("x"))])),
            ["its name constraints limit subjects; no verifier would accept ours"],
        ),
    ],
)
def test_authorities_that_cannot_issue_are_refused(
    given: tuple[x509.Certificate, bytes], problems: list[str]
) -> None:
    certificate, key = given
    assert list(authority_problems([certificate], key, [SERVING], NOW)) == problems


def test_a_key_with_a_passphrase_is_refused() -> None:
    with pytest.raises(ToolError, match="passphrase"):
        node_certificates.private_key(
            new_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
        )


def test_authorities_are_found_beside_other_certificates() -> None:
    """The kubelet's own kubelet.crt has its certificate before its authority."""
    leaf = AUTHORITY.issue("node-1", **SPAN)
    found, others = node_certificates.authorities(leaf.cert_pem + AUTHORITY.cert_pem)
    assert (found, len(others)) == ([AUTHORITY.certificate], 1)
    with pytest.raises(ToolError, match="none of its certificates is an authority's"):
        node_certificates.authorities(leaf.cert_pem)
