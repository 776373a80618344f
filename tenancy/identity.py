# SPDX-License-Identifier: Apache-2.0
"""Identifies the caller: the tenant behind a certificate chain that OpenSSL has verified.

Two forms, and nothing else is an identity - no header, no SNI, no subject:

- registered: the chain ends at an authority of tenant T, and the leaf's public key is in T's list.
  A tenant's CA alone proves too little, as a tenant's administrators can have it sign anything.
- SPIFFE: the chain ends at the super cluster's SPIFFE authority, and the leaf has exactly one URI
  name, spiffe://<trust domain>/tenant/<key>/<apiserver|metrics>, of a tenant that is registered.
"""

import hashlib
from dataclasses import dataclass, field, replace

from tenancy import x509
from tenancy.registry import Registry
from tenancy.tenant import Role


@dataclass(frozen=True, slots=True)
class Identified:
    """A known caller, with what `still_identified` needs.

    `anchor` is the SHA-256 of the trust anchor's DER in hex, `trust_domain` is empty for the
    registered form. `not_after_s` is the first end of validity in the chain: a caller is the same with
    a renewed certificate, but each connection ends with the certificates that it was opened by.
    """

    tenant: str
    role: Role
    spki: str
    anchor: str
    trust_domain: str = ""
    not_after_s: float = field(default=float("inf"), compare=False)

    def is_expired(self, now_s: float) -> bool:
        return now_s > self.not_after_s


@dataclass(frozen=True, slots=True)
class Unregistered:
    """A verified chain of no registered caller. `spki` is empty where the leaf could not be read."""

    reason: str
    spki: str = ""


def identify(chain: tuple[bytes, ...], registry: Registry, now_s: float) -> Identified | Unregistered:
    """The caller behind `chain`: DER certificates as OpenSSL verified them, leaf first, the trust
    anchor last. `now_s` is the wall clock's. Never raises for anything that a peer can send."""
    if not chain:
        return Unregistered("no certificate")
    anchor = fingerprint(chain[-1])
    try:
        spki = x509.spki_sha256(chain[0])
    except x509.CertificateError as error:
        return Unregistered(f"leaf certificate: {error}")
    found: list[Identified] = []
    client = registry.client(anchor, spki)
    if client is not None:
        found.append(Identified(client.tenant, client.role, spki, anchor))
    reason = "public key is not registered"
    if registry.is_spiffe_anchor(anchor):
        by_uri = _by_spiffe(chain[0], spki, anchor, registry)
        if isinstance(by_uri, Identified):
            found.append(by_uri)
        else:
            reason = by_uri.reason
    if not found:
        return Unregistered(reason, spki)
    # A leaf may be both, in words that agree. If they do not agree we do not choose.
    if {(each.tenant, each.role) for each in found} != {(found[0].tenant, found[0].role)}:
        return Unregistered("public key and SPIFFE name are of different callers", spki)
    try:
        times = [x509.validity(der) for der in chain]
    except x509.CertificateError as error:
        return Unregistered(f"validity: {error}", spki)
    not_before_s, not_after_s = max(first for first, _ in times), min(last for _, last in times)
    # OpenSSL refuses such a chain in the handshake. One that expires between its check and this gets here.
    if not not_before_s <= now_s <= not_after_s:
        return Unregistered("certificate is not valid now", spki)
    return replace(found[0], not_after_s=not_after_s)


def still_identified(caller: Identified, registry: Registry) -> bool:
    """Whether a caller that was identified is, by this registry, the same in the same role. Time is
    not looked at: `is_expired`.

    Two dictionary look-ups: it is asked for each live connection after each reload.
    """
    if caller.trust_domain:
        return (
            registry.is_spiffe_anchor(caller.anchor)
            and registry.trust_domain == caller.trust_domain
            and caller.tenant in registry.tenants
        )
    client = registry.client(caller.anchor, caller.spki)
    return client is not None and (client.tenant, client.role) == (caller.tenant, caller.role)


def fingerprint(der: bytes) -> str:
    """The SHA-256 of a whole certificate in hex: how a trust anchor is known in `Identified`."""
    return hashlib.sha256(der).hexdigest()


def _by_spiffe(leaf: bytes, spki: str, anchor: str, registry: Registry) -> Identified | Unregistered:
    try:
        uris = x509.uri_sans(leaf)
    except x509.CertificateError as error:
        return Unregistered(f"leaf certificate: {error}", spki)
    # "An X.509 SVID MUST contain exactly one URI SAN" (SPIFFE X509-SVID, 2).
    if len(uris) != 1:
        return Unregistered("not exactly one URI name", spki)
    # Compared as a whole with what we would have written: no percent-decoding, no case folding, no
    # query or fragment that two readers could take differently.
    start, _, rest = uris[0].partition("/tenant/")
    key, _, role = rest.partition("/")
    if start != f"spiffe://{registry.trust_domain}" or role not in _ROLES:
        return Unregistered("URI name is not that of a tenant", spki)
    if key not in registry.tenants:
        return Unregistered("URI name is that of no registered tenant", spki)
    return Identified(key, _ROLES[role], spki, anchor, registry.trust_domain)


_ROLES = {role.value: role for role in Role}
