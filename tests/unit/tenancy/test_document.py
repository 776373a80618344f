# SPDX-License-Identifier: Apache-2.0
import copy
import json
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from devkit.pki import Authority, certificate_builder, common_name, new_key
from tenancy.document import TenantError, certificates, document_of, parse_tenant
from tenancy.tenant import Role, Tenant

OLD, NEW = Authority.create("old"), Authority.create("new")
SPKI_1, SPKI_2 = "0f" * 32, "ab" * 32


def good() -> dict[str, Any]:
    return {
        "apiVersion": "vcnode.io/v1alpha1",
        "kind": "Tenant",
        "metadata": {"name": "ten-a"},
        "spec": {
            "certificateAuthority": OLD.cert_pem.decode(),
            "clients": [
                {"spkiSHA256": SPKI_1, "role": "apiserver"},
                {"spkiSHA256": SPKI_2.upper(), "role": "metrics"},
            ],
            "clusterDomain": "a.example",
        },
    }


def test_a_complete_tenant_file_is_read() -> None:
    assert parse_tenant(good()) == Tenant(
        "ten-a", (OLD.der,), {SPKI_1: Role.APISERVER, SPKI_2: Role.METRICS}, "a.example"
    )


def test_pem_may_have_text_and_duplicate_authorities() -> None:
    document = good()
    both = OLD.cert_pem + b"# the next one\r\n" + NEW.cert_pem.replace(b"\n", b"\r\n") + OLD.cert_pem
    document["spec"]["certificateAuthority"] = both.decode()
    assert parse_tenant(document).authorities == (OLD.der, NEW.der)


@pytest.mark.parametrize("spec", [None, {}, {"clusterDomain": "cluster.local"}])
def test_a_tenant_by_spiffe_needs_no_clients(spec: object) -> None:
    document = good()
    if spec is None:
        del document["spec"]
    else:
        document["spec"] = spec
    assert parse_tenant(document) == Tenant("ten-a", (), {}, "cluster.local")


@pytest.mark.parametrize(
    ("path", "value", "errors"),
    [
        (("apiVersion",), "v1", ("apiVersion: must be vcnode.io/v1alpha1",)),
        (("kind",), None, ("kind: must be Tenant",)),
        (("extra",), 1, ("extra: unknown key",)),
        (("metadata", "labels"), {}, ("metadata.labels: unknown key",)),
        (("spec", "certificateAuthorities"), "", ("spec.certificateAuthorities: unknown key",)),
        (("spec", "clients", 1, "cn"), "x", ("spec.clients[1].cn: unknown key",)),
        (
            ("metadata", "name"),
            7,
            (
                "metadata.name: must be a string",
                "metadata.name: cluster key '' is not a DNS label of at most 63 characters",
            ),
        ),
        (
            ("metadata", "name"),
            "../a",
            ("metadata.name: cluster key '../a' is not a DNS label of at most 63 characters",),
        ),
        (("spec",), [], ("spec: must be a mapping",)),
        (
            ("spec", "certificateAuthority"),
            "words",
            (
                "spec.certificateAuthority: holds no certificate",
                "spec.clients: no client can be verified without a certificateAuthority",
            ),
        ),
        (("spec", "clients"), {}, ("spec.clients: must be a list",)),
        (
            ("spec", "clients", 0),
            "x",
            (
                "spec.clients[0]: must be a mapping",
                "spec.clients[0].spkiSHA256: must be a string",
                "spec.clients[0].spkiSHA256: must be 64 hex digits",
                "spec.clients[0].role: must be apiserver or metrics",
            ),
        ),
        (
            ("spec", "clients", 1, "spkiSHA256"),
            SPKI_1,
            ("spec.clients[1].spkiSHA256: is in the list already",),
        ),
        (("spec", "clients", 0, "role"), "admin", ("spec.clients[0].role: must be apiserver or metrics",)),
        (
            ("spec", "clients", 0, "role"),
            ["apiserver"],
            ("spec.clients[0].role: must be apiserver or metrics",),
        ),
        (
            ("spec", "clients", 0, "spkiSHA256"),
            "0f" * 31 + "\n0",
            ("spec.clients[0].spkiSHA256: must be 64 hex digits",),
        ),
        (("spec", "clients"), [{}] * 65, ("spec.clients: has more than 64 entries",)),
        (("spec", "clusterDomain"), "A b", ("spec.clusterDomain: must be a DNS name in lower case",)),
    ],
)
def test_each_error_has_its_path(path: tuple[Any, ...], value: object, errors: tuple[str, ...]) -> None:
    document = good()
    at: Any = document
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    with pytest.raises(TenantError) as raised:
        parse_tenant(document)
    assert raised.value.errors == errors


def test_all_errors_are_listed() -> None:
    document = good() | {"kind": "Tenat", "x": 1}
    document["spec"]["clients"][0]["role"] = "x"
    with pytest.raises(TenantError) as raised:
        parse_tenant(document)
    assert raised.value.errors == (
        "x: unknown key",
        "kind: must be Tenant",
        "spec.clients[0].role: must be apiserver or metrics",
    )


PEM = OLD.cert_pem.decode()
LEAF = OLD.issue("leaf")


_OTHER_MARKER = "holds a PEM marker other than the begin of a CERTIFICATE"


@pytest.mark.parametrize(
    ("pem", "reason"),
    [
        pytest.param(LEAF.key_pem.decode(), _OTHER_MARKER, id="key"),
        pytest.param(PEM + LEAF.key_pem.decode(), _OTHER_MARKER, id="key after a certificate"),
        pytest.param(PEM.replace("CERTIFICATE", "TRUSTED CERTIFICATE"), _OTHER_MARKER, id="trusted"),
        pytest.param("-----END CERTIFICATE-----", _OTHER_MARKER, id="end alone"),
        pytest.param(PEM.replace("-----END", "-----end"), "a PEM block is not closed", id="small end"),
        pytest.param(PEM[:100], "a PEM block is not closed", id="cut off"),
        pytest.param(PEM[:100] + "\n" + PEM, "a PEM block is not closed", id="cut off before another"),
        pytest.param(PEM.replace("M", "!", 1), "a PEM block is not base64", id="punctuation"),
        pytest.param(PEM.replace("\nM", "\né", 1), "a PEM block is not base64", id="not ASCII"),
        pytest.param(
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
            "cut off within a header",
            id="short DER",
        ),
        pytest.param("x" * 262145, "longer than 262144 characters", id="too long"),
    ],
)
def test_pem_that_is_not_certificates(pem: str, reason: str) -> None:
    with pytest.raises(ValueError, match="^" + reason):
        certificates(pem)


def test_an_authority_with_a_slow_key_is_refused() -> None:
    """Each client's chain is checked against all authorities of its issuer's name."""
    key = ec.generate_private_key(ec.SECP256K1())
    name = common_name("ca")
    document = good()
    authority = certificate_builder(name, name, key).sign(key, hashes.SHA256())
    document["spec"]["certificateAuthority"] = authority.public_bytes(Encoding.PEM).decode()
    with pytest.raises(TenantError) as raised:
        parse_tenant(document)
    assert raised.value.errors[0].startswith("spec.certificateAuthority: a key that is slow to use; take RSA")


def test_many_names_in_name_constraints_are_refused() -> None:
    """OpenSSL compares each with each name of a client."""
    key = new_key()
    name = common_name("ca")
    constraints = x509.NameConstraints([x509.DNSName(f"n{each}") for each in range(33)], None)
    builder = certificate_builder(name, name, key).add_extension(constraints, critical=True)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()
    assert len(certificates(pem)) == 1
    with pytest.raises(ValueError, match="more than 64 names in name constraints"):
        certificates(pem * 2)


def test_the_number_of_authorities_has_a_bound() -> None:
    document = good()
    pem = "".join(Authority.create(f"ca{n}").cert_pem.decode() for n in range(17))
    document["spec"]["certificateAuthority"] = pem
    with pytest.raises(TenantError) as raised:
        parse_tenant(document)
    assert raised.value.errors == ("spec.certificateAuthority: holds more than 16 certificates",)


@pytest.mark.parametrize(
    "tenant",
    [
        parse_tenant(good()),
        Tenant("b", (OLD.der, NEW.der), {}),
        Tenant("c", (), {}, "c.example"),
    ],
)
def test_a_tenant_round_trips_through_its_document(tenant: Tenant) -> None:
    assert parse_tenant(json.loads(json.dumps(document_of(tenant)))) == tenant


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    st.sampled_from(["apiVersion", "kind", "metadata", "spec", "certificateAuthority", "clients", "role"]),
    json_values,
)
def test_any_value_of_any_field_is_an_error_or_a_tenant(field: str, value: object) -> None:
    document = copy.deepcopy(good())
    at = document if field in document else document["spec"]
    if field == "role":
        at, field = document["spec"]["clients"][0], "role"
    at[field] = value
    try:
        found = parse_tenant(document)
    except TenantError:
        return
    assert parse_tenant(document_of(found)) == found


@given(json_values)
def test_arbitrary_documents_are_errors(document: object) -> None:
    with pytest.raises(TenantError):
        parse_tenant(document)
