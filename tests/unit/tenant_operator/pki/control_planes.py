# SPDX-License-Identifier: Apache-2.0
"""A control plane with all its certificates, as the operator issues them."""

import contextlib
import os
import ssl
from collections.abc import Mapping

from tenancy import keys
from tenant_operator.model.cluster_version import DatastoreSpec, Images, Release, SizeClass
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.virtual_cluster import Exposure
from tenant_operator.pki import catalog, issuing
from tenant_operator.pki.catalog import AuthoritySpec, CertificateUsage, LeafSpec
from tenant_operator.pki.facts import SecretFacts, data_digest, digest_of, secret_facts

KEY = "tenants-70b001-acme"
NOW = 1_780_000_000.0  # 2026-05-28T20:26:40Z
DAY = 86400.0
# X509_V_FLAG_NO_CHECK_TIME of OpenSSL's x509_vfy.h.
_NO_CHECK_TIME = 0x200000
ADDRESS = "10.96.3.7"
# What a server shows to a client that does not verify it.
SOMEBODY = issuing.new_authority(AuthoritySpec("any", "", (CertificateUsage.SERVER,), "somebody"), NOW)


def control_plane(datastore: str = "etcd", days: int = 365) -> ControlPlane:
    release = Release(
        "v1.34",
        "1.34.4",
        (1, 34, 4),
        "3.7.3",
        Images(),
        DatastoreSpec(datastore),
        {"small": SizeClass()},
        "small",
    )
    return ControlPlane(
        KEY,
        "acme",
        "tenants",
        "70b001aa-0000-4000-8000-000000000001",
        release,
        SizeClass(),
        "cluster.local",
        ("10.32.0.0/24",),
        days,
        Exposure(),
    )


def specs(plane: ControlPlane | None = None) -> tuple[LeafSpec, ...]:
    return catalog.leaves(plane or control_plane(), [ADDRESS], ["acme.example.com"])


def issue_all(
    plane: ControlPlane, now: float = NOW
) -> tuple[Mapping[str, issuing.IssuedPair], Mapping[str, issuing.IssuedPair]]:
    """All authorities and all leaves, by the names of their Secrets."""
    authorities = {spec.secret: issuing.new_authority(spec, now) for spec in catalog.authorities(plane)}
    leaves = {
        spec.secret: issuing.issue_pair(spec, authorities[spec.authority], now) for spec in specs(plane)
    }
    return authorities, leaves


def accepts(trusted: bytes, usage: CertificateUsage, pair: issuing.IssuedPair) -> bool:
    """Whether OpenSSL, with these authorities (PEM), verifies the pair as a client's or as a server's.

    A handshake in memory, whenever the test runs. Names are not checked.
    """
    shows_client = usage is CertificateUsage.CLIENT
    client, server = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE if shows_client else ssl.CERT_REQUIRED
    server.verify_mode = ssl.CERT_REQUIRED if shows_client else ssl.CERT_NONE
    verifier = server if shows_client else client
    verifier.load_verify_locations(cadata=trusted.decode())
    verifier.verify_flags |= _NO_CHECK_TIME
    _load(client if shows_client else server, pair)
    if shows_client:
        _load(server, SOMEBODY)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    try:
        for _ in range(8):
            for end in ends:
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
    except ssl.SSLCertVerificationError:
        return False
    return True


def _load(context: ssl.SSLContext, pair: issuing.IssuedPair) -> None:
    descriptor = os.memfd_create("pair", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(pair.certificate_pem + pair.key_pem)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")


def read(data: Mapping[str, bytes], annotations: Mapping[str, str]) -> SecretFacts:
    """What the operator keeps of a Secret."""
    digests = {key: digest_of(value) for key, value in data.items()}
    certificates = {key: value for key, value in data.items() if key.endswith(".crt")}
    return secret_facts(annotations, digests, certificates)


def kept(data: Mapping[str, bytes], annotations: Mapping[str, str]) -> SecretFacts:
    """The same of one that it wrote so."""
    digests = {key: digest_of(value) for key, value in data.items()}
    return read(data, {**annotations, keys.DATA_DIGEST: data_digest(digests)})
