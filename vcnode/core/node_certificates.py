# SPDX-License-Identifier: Apache-2.0
"""Judges authorities and certificates that `vcnode init` is given or finds, before a handshake does."""

import datetime as dt
import enum
import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from vcnode.core.certificates import subject_text
from vcnode.core.init_plan import CertificateSpec
from vcnode.terminal import ToolError

# A certificate is issued again in the last third of its life, so that a yearly one has four months' notice.
_RENEWED_AFTER = 2 / 3
_MAX_CERTIFICATES = 32

Extension = TypeVar("Extension", bound=x509.ExtensionType)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate, with its chain behind it, and its key: both PEM."""

    certificate_pem: bytes
    key_pem: bytes = field(repr=False)


class PairState(enum.Enum):
    """What to do with a pair that is there already."""

    VALID = "valid"
    RENEWABLE = "renewable"
    """It is damaged, expired or near its end: another one replaces it."""
    DIFFERENT = "different"
    """It is valid for another subject, name or authority: replaced only when that is asked for."""


@dataclass(frozen=True, slots=True)
class PairStatus:
    """`reason` says why it is not VALID, `expires` is None for one that cannot be read."""

    state: PairState
    reason: str = ""
    expires: dt.datetime | None = None


def pair_status(
    pair: KeyPair, spec: CertificateSpec, issuer: x509.Certificate | None, now: dt.datetime
) -> PairStatus:
    """Whether a pair is what `spec` asks for, issued by `issuer` if that is known, and valid for long."""
    try:
        leaf = certificates(pair.certificate_pem)[0]
        problem = key_problem(leaf, pair.key_pem)
    except ToolError as error:
        return PairStatus(PairState.RENEWABLE, str(error))
    if problem:
        return PairStatus(PairState.RENEWABLE, problem)
    expires = leaf.not_valid_after_utc
    if now >= expires:
        return PairStatus(PairState.RENEWABLE, f"it expired on {expires:%Y-%m-%d}", expires)
    different = next(_differences(leaf, spec, issuer), "")
    if different:
        return PairStatus(PairState.DIFFERENT, different, expires)
    begins = leaf.not_valid_before_utc
    if now < begins:
        return PairStatus(PairState.RENEWABLE, f"it is not valid before {begins:%Y-%m-%d %H:%M} UTC", expires)
    if now >= begins + (expires - begins) * _RENEWED_AFTER:
        return PairStatus(PairState.RENEWABLE, f"it expires on {expires:%Y-%m-%d}", expires)
    return PairStatus(PairState.VALID, "", expires)


def certificates(pem: bytes) -> Sequence[x509.Certificate]:
    """All certificates of a file. Raises ToolError if it has none or too many."""
    try:
        found = x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise ToolError("it has no readable PEM certificate") from None
    if len(found) > _MAX_CERTIFICATES:
        raise ToolError(f"it has more than {_MAX_CERTIFICATES} certificates")
    return found


def private_key(pem: bytes) -> Any:
    """The key of a file. Raises ToolError."""
    try:
        return load_pem_private_key(pem, None)
    except TypeError:
        raise ToolError("the key has a passphrase; remove it (openssl pkey)") from None
    except (ValueError, UnsupportedAlgorithm):
        raise ToolError("it has no readable PEM key") from None


def key_problem(certificate: x509.Certificate, key_pem: bytes) -> str:
    """Why the key is not the certificate's; empty if it is. Raises ToolError if it cannot be read."""
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    own = private_key(key_pem).public_key().public_bytes(*form)
    is_same: bool = own == certificate.public_key().public_bytes(*form)
    return "" if is_same else "the key is not that of the certificate"


def authorities(pem: bytes) -> tuple[list[x509.Certificate], list[x509.Certificate]]:
    """The authorities of a file that others are verified by, and its certificates that are none.

    The kubelet's own kubelet.crt has its certificate before its authority. Raises ToolError without one.
    """
    found = certificates(pem)
    authorities = [each for each in found if _is_authority(each)]
    if not authorities:
        raise ToolError("none of its certificates is an authority's (basic constraints CA:TRUE)")
    return authorities, [each for each in found if each not in authorities]


def authority_problems(
    chain: Sequence[x509.Certificate],
    key_pem: bytes,
    specs: Sequence[CertificateSpec],
    now: dt.datetime,
) -> Iterator[str]:
    """Why the first of `chain` cannot issue the certificates `specs`. Raises ToolError for a bad key."""
    authority = chain[0]
    if not _is_authority(authority):
        yield "it is not an authority's certificate (basic constraints CA:TRUE)"
    usage = _extension(authority, x509.KeyUsage)
    if usage is not None and not usage.key_cert_sign:
        yield "its key usage does not allow signing certificates"
    if now >= authority.not_valid_after_utc:
        yield f"it expired on {authority.not_valid_after_utc:%Y-%m-%d}"
    if now < authority.not_valid_before_utc:
        yield f"it is not valid before {authority.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
    problem = key_problem(authority, key_pem)
    if problem:
        yield problem
    # Go and OpenSSL want the usage of a leaf in each certificate above it that lists usages.
    extended = _extension(authority, x509.ExtendedKeyUsage)
    for spec in specs:
        wanted = usage_of(spec)
        if extended is not None and not {wanted, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE} & set(extended):
            kind = "serving" if spec.is_serving else "client"
            yield f"its extended key usage does not allow {kind} certificates ({spec.name})"
    for each in chain:
        constraints = _extension(each, x509.NameConstraints)
        if constraints is not None:
            yield from _constraint_problems(constraints, specs)


def usage_of(spec: CertificateSpec) -> x509.ObjectIdentifier:
    """The extended key usage of the certificate (RFC 5280, 4.2.1.12)."""
    return ExtendedKeyUsageOID.SERVER_AUTH if spec.is_serving else ExtendedKeyUsageOID.CLIENT_AUTH


def serving_names(certificate: x509.Certificate) -> frozenset[str]:
    """The DNS names and addresses that it is valid for."""
    names = _extension(certificate, x509.SubjectAlternativeName)
    if names is None:
        return frozenset()
    return frozenset(names.get_values_for_type(x509.DNSName)) | frozenset(
        str(address) for address in names.get_values_for_type(x509.IPAddress)
    )


def _differences(
    leaf: x509.Certificate, spec: CertificateSpec, issuer: x509.Certificate | None
) -> Iterator[str]:
    if not spec.is_serving:
        # Kubernetes takes the user from CN and its groups from O.
        names = _attributes(leaf, NameOID.COMMON_NAME)
        if names != [spec.common_name]:
            yield f"its subject is {subject_text(leaf)}, not CN={spec.common_name}"
        groups = [] if spec.organization is None else [spec.organization]
        if _attributes(leaf, NameOID.ORGANIZATION_NAME) != groups:
            yield f"its subject is {subject_text(leaf)}, expected O={', '.join(groups) or '(none)'}"
    missing = {*spec.dns_names, *spec.addresses} - serving_names(leaf)
    if missing:
        yield f"it is not valid for {', '.join(sorted(missing))}"
    if _is_authority(leaf):
        yield "it is an authority's certificate"
    extended = _extension(leaf, x509.ExtendedKeyUsage)
    if extended is not None and usage_of(spec) not in extended:
        yield f"its extended key usage does not allow {'serving' if spec.is_serving else 'clients'}"
    if issuer is not None and not _is_issued_by(leaf, issuer):
        yield f"another authority issued it, not {subject_text(issuer)}"


def _is_issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _constraint_problems(
    constraints: x509.NameConstraints, specs: Sequence[CertificateSpec]
) -> Iterator[str]:
    """Names of the certificates that the authority may not certify (RFC 5280, 4.2.1.10)."""
    permitted, excluded = constraints.permitted_subtrees or [], constraints.excluded_subtrees or []
    if any(isinstance(each, x509.DirectoryName) for each in (*permitted, *excluded)):
        yield "its name constraints limit subjects; no verifier would accept ours"
    for spec in specs:
        for name in (*spec.dns_names, *spec.addresses):
            kind = x509.DNSName if name in spec.dns_names else x509.IPAddress
            allowed = [each for each in permitted if isinstance(each, kind)]
            is_allowed = not allowed or any(_is_within(name, each) for each in allowed)
            if not is_allowed or any(_is_within(name, each) for each in excluded):
                yield f"its name constraints exclude {name} ({spec.name})"


def _is_within(name: str, tree: x509.GeneralName) -> bool:
    if isinstance(tree, x509.DNSName):
        base = tree.value.lower().lstrip(".")
        return not base or name == base or name.endswith(f".{base}")
    if isinstance(tree, x509.IPAddress):
        try:
            return ipaddress.ip_address(name) in ipaddress.ip_network(str(tree.value))
        except ValueError:
            return False
    return False


def _is_authority(certificate: x509.Certificate) -> bool:
    constraints = _extension(certificate, x509.BasicConstraints)
    return constraints is not None and constraints.ca


def _attributes(certificate: x509.Certificate, kind: x509.ObjectIdentifier) -> list[str]:
    return [str(each.value) for each in certificate.subject.get_attributes_for_oid(kind)]


def _extension(certificate: x509.Certificate, kind: type[Extension]) -> Extension | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None
    except ValueError:  # an extension that comes twice, or bad DER
        raise ToolError(f"{subject_text(certificate)}: its extensions cannot be read") from None
