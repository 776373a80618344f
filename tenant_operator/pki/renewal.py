# SPDX-License-Identifier: Apache-2.0
"""When a certificate is issued again, when an authority is no longer used, and what the condition reports.
Pure.

A leaf is issued again whenever anything about it is not as it should be: that costs nothing. An authority is
never replaced so: what trusts it would refuse all that the next one signs.
"""

import datetime as dt
import enum
import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from tenancy import keys
from tenant_operator.model.objects import Ref
from tenant_operator.model.virtual_cluster import Condition
from tenant_operator.pki.catalog import LeafSpec
from tenant_operator.pki.facts import CertificateFacts, SecretFacts

CERTIFICATES_VALID = "CertificatesValid"

# How long a renewed certificate may take to be in use: a mounted Secret arrives within 90 s, client-go looks
# at its files every 5 minutes, and a client of etcd uses the new one from its next connection.
IN_USE_WITHIN_S = 3600.0
# As in `issuing`: certificates begin before they were issued.
_BACKDATED_S = 3600.0
_MAX_NAMED = 5
# Between two requests that all certificates be issued again.
REQUEST_S = 3600.0


class DueReason(enum.StrEnum):
    """Why a certificate is issued."""

    MISSING = "Missing"
    EDITED = "Edited"
    UNREADABLE = "Unreadable"
    AUTHORITY = "AuthorityChanged"
    SPEC = "SpecChanged"
    REQUESTED = "Requested"
    AGE = "Age"
    NOT_YET_VALID = "NotYetValid"


class AuthorityReason(enum.StrEnum):
    """Why an authority signs nothing."""

    MISSING = "AuthorityMissing"
    CHANGED = "AuthorityChanged"
    EXPIRED = "AuthorityExpired"
    KEYS_MISSING = "KeysMissing"
    KEYS_CHANGED = "KeysChanged"
    KEYS_OLDER = "KeysOlder"


class AuthorityProblem(msgspec.Struct, frozen=True):
    """An authority that signs nothing until a person has decided; `message` has the remedy."""

    reason: AuthorityReason
    message: str
    secret: Ref


def leaf_due(
    secret: SecretFacts | None,
    digest: str,
    authority: CertificateFacts,
    now: float,
    request: str = "",
) -> DueReason | None:
    """Why a leaf is issued now; None: it stays.

    `digest` is the `spec_digest` of what it should be, `authority` what signs now, `request` the token of
    the last request that all certificates be issued again.
    """
    if secret is None:
        return DueReason.MISSING
    if not secret.is_as_written:
        return DueReason.EDITED
    leaf, notes = secret.certificate, secret.annotations
    if leaf is None:
        return DueReason.UNREADABLE
    if not leaf.is_signed_by(authority):
        return DueReason.AUTHORITY
    if notes.get(keys.SPEC_DIGEST) != digest:
        return DueReason.SPEC
    if is_other_request(secret, request) and now >= request_due_at(secret):
        return DueReason.REQUESTED
    if authority.not_before <= now < leaf.not_before:
        # Issued while the clock was ahead. Where the authority is not valid yet either, it is behind now.
        return DueReason.NOT_YET_VALID
    return DueReason.AGE if now >= due_at(leaf, authority) else None


def is_other_request(secret: SecretFacts, request: str) -> bool:
    """Whether a person asks that the leaf be issued again, and it was not for this request."""
    return request != "" and secret.annotations.get(keys.ROTATION_TOKEN, "") != request


def request_due_at(secret: SecretFacts) -> float:
    """When a request is served, in seconds since 1970: an hour after the one before. Each is ten writes, and
    a program can make one a second."""
    leaf = secret.certificate
    if leaf is None or not secret.annotations.get(keys.ROTATION_TOKEN):
        return -math.inf
    return leaf.not_before + _BACKDATED_S + REQUEST_S


def requests_wait(secrets: Iterable[SecretFacts | None], request: str, now: float) -> str:
    """A sentence about a request that waits; empty if none does."""
    found = [request_due_at(each) for each in secrets if each is not None and is_other_request(each, request)]
    until = max(found, default=-math.inf)
    if now >= until:
        return ""
    return f"The request to issue all certificates again is served at {_text(until)}: one an hour is."


def due_at(leaf: CertificateFacts, authority: CertificateFacts | None = None) -> float:
    """When two thirds of its life are over, in seconds since 1970.

    Never, for one that ends with its authority: the next one would end with it, too.
    """
    if authority is not None and leaf.not_after >= authority.not_after:
        return math.inf
    return leaf.not_after - (leaf.not_after - leaf.not_before) / 3


def authority_problem(
    ref: Ref,
    secret: SecretFacts | None,
    signed: Iterable[Ref],
    now: float,
    request: str = "",
    spent: Collection[str] = (),
    *,
    was_there: bool = False,
) -> AuthorityProblem | None:
    """Why this authority is neither made nor used. None: it is made if it is missing, else it signs.

    `signed` are Secrets with certificates of it; `was_there`: there were some, whatever is left. `request` is
    the token of the last request to rotate it: by that a person says that the authority may be replaced, if
    it is none of those that were `spent`, as they were made while it was there.
    """
    if _is_permission(secret, request, spent):
        return None
    annotation = f"{keys.ROTATE_PREFIX}{ref.name}=<any new value>"
    remedy = f"Restore it from a backup, or annotate the VirtualCluster {annotation}"
    if secret is None:
        first = min(map(str, signed), default="")
        if not first and not was_there:
            return None
        used = f"{first} has a certificate that it signed" if first else "certificates of it were in use"
        return AuthorityProblem(
            AuthorityReason.MISSING,
            f"{ref} is missing, and {used}. {remedy} to make another one: "
            "clients that trust the missing one alone are refused then.",
            ref,
        )
    own = secret.certificate
    if own is None or not secret.is_as_written:
        return AuthorityProblem(
            AuthorityReason.CHANGED,
            f"{ref} is not as vc-operator wrote it, and signs nothing. {remedy} to replace it.",
            ref,
        )
    if now >= own.not_after and not _is_permission(secret, request, ()):
        return AuthorityProblem(
            AuthorityReason.EXPIRED, f"{ref} expired at {_text(own.not_after)}. {remedy} to replace it.", ref
        )
    return None


def keys_problem(
    ref: Ref,
    what: str,
    secret: SecretFacts | None,
    request: str,
    spent: Collection[str] = (),
    copy: str = "",
    *,
    is_provisioned: bool,
    is_older: bool = False,
) -> AuthorityProblem | None:
    """The same for keys without a certificate. `is_provisioned`: they may have been used already. `copy` is
    the name of a Secret beside it that has a copy of them. `is_older`: the key that was in use last is not
    among them."""
    if _is_permission(secret, request, spent):
        return None
    restore = _restored_by(ref, copy, is_there=secret is not None) if copy else "Restore it from a backup"
    remedy = f"{restore}, or annotate the VirtualCluster {keys.ROTATE_PREFIX}{what}=<any new value>"
    lost = "what this one signed is refused then, and what it encrypted cannot be read"
    if secret is None and is_provisioned:
        return AuthorityProblem(
            AuthorityReason.KEYS_MISSING, f"{ref} is missing. {remedy} to make another one: {lost}.", ref
        )
    # Without its ids it is not known which key is in use: a new one would make what it encrypted unreadable.
    if secret is not None and not (
        secret.is_as_written and secret.annotations.get(keys.KEY_IDS, "").partition(",")[0]
    ):
        return AuthorityProblem(
            AuthorityReason.KEYS_CHANGED,
            f"{ref} is not as vc-operator wrote it. {remedy} to replace it: {lost}.",
            ref,
        )
    if secret is not None and is_older:
        return AuthorityProblem(
            AuthorityReason.KEYS_OLDER,
            f"{ref} is of before a rotation, and lacks the key that was in use last. {remedy} to go on "
            "without that one: what it signed is refused then, and what it encrypted cannot be read.",
            ref,
        )
    return None


def _restored_by(ref: Ref, copy: str, *, is_there: bool) -> str:
    # A condition has no two spaces in a row.
    edit = rf"/^ {{2}}(creationTimestamp|resourceVersion|uid):/d; s/^( {{2}}name:) .*/\1 {ref.name}/"
    verb = "replace" if is_there else "create"
    read = f"kubectl get secret {copy} -n {ref.namespace} -o yaml"
    return f"Restore it from its copy: {read} | sed -E '{edit}' | kubectl {verb} -f -"


def problems_text(problems: Sequence[AuthorityProblem]) -> str:
    """All that a person has to decide: the first whole, and which Secrets beside it have the same remedy."""
    first, *others = problems
    if not others:
        return first.message
    named = ", ".join(f"{each.secret.name} ({each.reason})" for each in others)
    return f"{first.message} Other Secrets beside it, with remedies of the same kind: {named}."


def _is_permission(secret: SecretFacts | None, request: str, spent: Collection[str]) -> bool:
    """Whether a request is one for this Secret as it is. The annotation of one that was served stays, and the
    Secret is lost with its annotations."""
    last = "" if secret is None else secret.annotations.get(keys.ROTATION_TOKEN, "")
    return request not in ("", last) and request not in spent


def certificates_condition(
    leaves: Mapping[LeafSpec, SecretFacts | None],
    served: Mapping[str, CertificateFacts],
    problems: Iterable[AuthorityProblem],
    now: float,
) -> Condition:
    """The condition `CertificatesValid`: of the certificates in use, not of those in Secrets.

    `served` has what probes were shown, by the name of the Secret, and of the replica behind a slash where
    there are several.
    """
    lost = tuple(problems)
    if lost:
        return _condition("False", lost[0].reason, problems_text(lost))
    written = {spec.secret: (spec, secret) for spec, secret in leaves.items()}
    missing = [
        str(spec.ref) for spec, secret in written.values() if secret is None or secret.certificate is None
    ]
    if missing:
        return _condition("False", "NotIssued", f"{_listed(missing)} not issued yet; vc-operator retries.")
    expired, late = [], []
    for name, facts in served.items():
        if now >= facts.not_after:
            expired.append(f"{name} serves a certificate that expired at {_text(facts.not_after)}")
        elif _is_late(facts, written.get(name.partition("/")[0]), now):
            late.append(f"{name} serves the certificate of {_issued(facts)}, though its Secret was renewed")
    for spec, secret in written.values():
        own = None if secret is None else secret.certificate
        if own is not None and now >= own.not_after:
            expired.append(f"{spec.ref} expired at {_text(own.not_after)}")
    if expired:
        return _condition("False", "Expired", f"{_listed(expired)}. Delete the pods that use it.")
    if late:
        return _condition("False", "OldCertificateInUse", f"{_listed(late)}. Delete its pod.")
    return _first_to_end(written, served)


def _first_to_end(
    written: Mapping[str, tuple[LeafSpec, SecretFacts | None]], served: Mapping[str, CertificateFacts]
) -> Condition:
    used = dict(served)
    probed = {name.partition("/")[0] for name in served}
    for spec, secret in written.values():
        if secret is not None and secret.certificate is not None and spec.secret not in probed:
            used[spec.secret] = secret.certificate
    if not used:
        return _condition("Unknown", "NotIssued", "No certificate is issued yet.")
    name, facts = min(used.items(), key=lambda item: (item[1].not_after, item[0]))
    times = f"issued at {_issued(facts)}, until {_text(facts.not_after)}"
    return _condition("True", "Valid", f"The first to end is that of {name}, {times}.")


def _is_late(
    facts: CertificateFacts, written: tuple[LeafSpec, SecretFacts | None] | None, now: float
) -> bool:
    secret = None if written is None else written[1]
    newest = None if secret is None else secret.certificate
    if newest is None or newest.spki_sha256 == facts.spki_sha256:
        return False
    return now >= newest.not_before + _BACKDATED_S + IN_USE_WITHIN_S


def _condition(status: str, reason: str, message: str) -> Condition:
    return Condition(CERTIFICATES_VALID, status, reason, message)


def _listed(sentences: list[str]) -> str:
    more = len(sentences) - _MAX_NAMED
    return "; ".join(sentences[:_MAX_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _issued(facts: CertificateFacts) -> str:
    # A date, and not an age: a message that changes by the hour would be a write each hour.
    return _text(facts.not_before + _BACKDATED_S)


def _text(seconds: float) -> str:
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
