# SPDX-License-Identifier: Apache-2.0
"""All tenants of a node as one immutable value, and how a reading of the sources changes it.

Tenants come from named sources (a file, a VirtualCluster object). A source that turns bad keeps its last good
tenant and does not affect others. What two tenants claim stays with the one that had it before, and the
other is refused. If neither had it, both are refused: a guess could give one tenant's pods to another.

What can be claimed once only:
- a cluster key;
- a client: one public key below one authority;
- a subject name of authorities that OpenSSL could confuse: certificates of one name that no subject key
  identifier distinguishes.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tenancy import x509
from tenancy.document import TenantError, document_of, parse_tenant
from tenancy.tenant import Role, Tenant

_STATE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Bad:
    """A source could not be used."""

    reason: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A source whose present content is not served. `is_kept`: its last good state is served instead.

    `tenant` is its key, empty if that is unknown.
    """

    source: str
    tenant: str
    reason: str
    is_kept: bool


@dataclass(frozen=True, slots=True)
class SpiffeTrust:
    """The super cluster's own authorities (DER), whose leaves name their tenant in a URI."""

    authorities: tuple[bytes, ...]
    trust_domain: str


@dataclass(frozen=True, slots=True)
class RegisteredClient:
    """The owner of a registered public key."""

    tenant: str
    role: Role


@dataclass(frozen=True, slots=True)
class Registry:
    """The tenants by the name of their source, and the look-ups that identity needs.

    Build one with `merge`, which resolves conflicting claims.
    """

    sources: Mapping[str, Tenant] = field(default_factory=dict)
    spiffe: SpiffeTrust | None = None
    tenants: Mapping[str, Tenant] = field(init=False, compare=False, repr=False)
    _clients: Mapping[tuple[str, str], RegisteredClient] = field(init=False, compare=False, repr=False)
    _spiffe_anchors: frozenset[str] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        clients = {
            (_fingerprint(der), spki): RegisteredClient(tenant.key, role)
            for tenant in self.sources.values()
            for der in tenant.authorities
            for spki, role in tenant.clients.items()
        }
        trusted = self.spiffe.authorities if self.spiffe else ()
        object.__setattr__(self, "tenants", {t.key: t for t in self.sources.values()})
        object.__setattr__(self, "_clients", clients)
        object.__setattr__(self, "_spiffe_anchors", frozenset(map(_fingerprint, trusted)))

    @property
    def trust_domain(self) -> str:
        """The SPIFFE trust domain, empty where there is none."""
        return self.spiffe.trust_domain if self.spiffe else ""

    def client(self, anchor: str, spki: str) -> RegisteredClient | None:
        """The owner of the public key `spki` below the authority `anchor` (both SHA-256 in hex)."""
        return self._clients.get((anchor, spki))

    def is_spiffe_anchor(self, anchor: str) -> bool:
        """Whether `anchor` (SHA-256 in hex) is an authority of the SPIFFE trust domain."""
        return anchor in self._spiffe_anchors

    def authorities(self) -> tuple[bytes, ...]:
        """The DER of every authority, each once: what the TLS context is to trust."""
        found = dict.fromkeys(self.spiffe.authorities if self.spiffe else ())
        for source in sorted(self.sources):
            found.update(dict.fromkeys(self.sources[source].authorities))
        return tuple(found)


def present_in(registry: Registry, incoming: Mapping[str, Tenant | Bad]) -> frozenset[str]:
    """The sources of `registry` that a reading accounts for: by their name, or by their tenant's key.

    A file that was renamed, or a VirtualCluster that was made again, is another source of the same tenant.
    """
    keys = {each.key for each in incoming.values() if isinstance(each, Tenant)}
    found = registry.sources.items()
    return frozenset(source for source, tenant in found if source in incoming or tenant.key in keys)


def merge(previous: Registry, incoming: Mapping[str, Tenant | Bad]) -> tuple[Registry, tuple[Problem, ...]]:
    """The registry after a reading of all sources, and its problems.

    `incoming` is complete: a source that is not in it is gone, and so is its tenant. The SPIFFE
    trust is the previous one's. Merging the same again changes nothing, but to a source that
    keeps its last good state the problem is reported again.
    """
    registry, problems = _merge_once(previous, incoming)
    # A source that lost to another may be served if that other is refused too. Repeat until it converges,
    # or the result would depend on how often the sources are read.
    for _ in incoming:
        again, reported = _merge_once(registry, incoming)
        if again.sources == registry.sources:
            break
        registry, problems = again, reported
    return registry, problems


def _merge_once(
    previous: Registry, incoming: Mapping[str, Tenant | Bad]
) -> tuple[Registry, tuple[Problem, ...]]:
    candidates: dict[str, Tenant] = {}
    problems: dict[str, Problem] = {}

    def step_down(source: str, tenant: str, reason: str) -> None:
        """Fall back from the source's present content to its last good state, and from there to nothing."""
        old = previous.sources.get(source)
        is_kept = old is not None and candidates.get(source) is not old
        if old is not None and is_kept:
            candidates[source] = old
        else:
            candidates.pop(source, None)
        problems[source] = Problem(source, tenant, reason, is_kept)

    for source, value in sorted(incoming.items()):
        if isinstance(value, Bad):
            old = previous.sources.get(source)
            step_down(source, old.key if old else "", value.reason)
        else:
            # Unchanged content is the last good state: there is nothing else to fall back to.
            old = previous.sources.get(source)
            candidates[source] = old if old == value else value
    # Each round takes at least one source a step down, and each source has two steps.
    while refused := _conflicts(candidates, previous):
        for source, reason in refused.items():
            step_down(source, candidates[source].key, reason)
    registry = Registry(candidates, previous.spiffe)
    return registry, tuple(problems[source] for source in sorted(problems))


def dump(registry: Registry) -> bytes:
    """The tenants as bytes for the saved state. The SPIFFE trust is configuration and not in it."""
    sources = {source: document_of(tenant) for source, tenant in registry.sources.items()}
    return json.dumps({"version": _STATE_VERSION, "tenants": sources}, indent=1).encode()


def load(state: bytes, spiffe: SpiffeTrust | None) -> tuple[Registry, tuple[Problem, ...]]:
    """The registry that `dump` saved. Raises TenantError if the bytes are not a saved state.

    A tenant in it that is not usable is left out, with a Problem.
    """
    try:
        document = json.loads(state)
    except ValueError as error:  # a JSONDecodeError or a UnicodeDecodeError
        raise TenantError((f"saved state: {error}",)) from error
    except RecursionError as error:
        raise TenantError(("saved state: too deeply nested",)) from error
    if not isinstance(document, dict) or document.get("version") != _STATE_VERSION:
        raise TenantError((f"saved state: not of version {_STATE_VERSION}",))
    tenants = document.get("tenants")
    if not isinstance(tenants, dict):
        raise TenantError(("saved state: has no tenants",))
    incoming: dict[str, Tenant | Bad] = {}
    for source, saved in tenants.items():
        try:
            incoming[source] = parse_tenant(saved)
        except TenantError as error:
            incoming[source] = Bad(str(error))
    return merge(Registry(spiffe=spiffe), incoming)


@dataclass(frozen=True, slots=True)
class _Claim:
    """Something that one tenant only may have. `what` is for an operator to read."""

    what: str
    value: tuple[str, ...]


def _conflicts(candidates: Mapping[str, Tenant], previous: Registry) -> dict[str, str]:
    """The sources that claim what another has, each with the reason."""
    claimed: dict[_Claim, list[str]] = {}
    for source, tenant in candidates.items():
        for claim in _claims(tenant):
            claimed.setdefault(claim, []).append(source)
    refused: dict[str, str] = {}
    for claim, sources in claimed.items():
        if len(sources) > 1:
            holder = _holder(claim, sources, previous)
            word = "is another tenant's" if holder else "is claimed by two tenants"
            refused |= {each: f"{claim.what} {word}" for each in sources if each != holder}
    return refused | _ambiguous(candidates, previous)


def _claims(tenant: Tenant) -> Iterator[_Claim]:
    yield _Claim(f"cluster key {tenant.key}", ("key", tenant.key))
    for der in tenant.authorities:
        anchor = _fingerprint(der)
        for spki in tenant.clients:
            yield _Claim(f"client {spki} below authority {anchor}", ("client", anchor, spki))


def _holder(claim: _Claim, sources: list[str], previous: Registry) -> str:
    """The one of `sources` that had the claim in the previous registry, empty if none had it."""
    for source in sources:
        old = previous.sources.get(source)
        if old is not None and claim in _claims(old):
            return source
    return ""


def _ambiguous(candidates: Mapping[str, Tenant], previous: Registry) -> dict[str, str]:
    """The sources whose authorities OpenSSL could take for another's, each with the reason.

    OpenSSL finds an issuer by its name and, where both ends have one, the key identifier. Between
    certificates that this does not tell apart it takes any.
    """
    by_name: dict[bytes, _SourcesByCertificate] = {}
    for source, tenant in candidates.items():
        for der in tenant.authorities:
            named = by_name.setdefault(x509.canonical_subject(der), {})
            named.setdefault(der, set()).add(source)
    for der in previous.spiffe.authorities if previous.spiffe else ():
        by_name.setdefault(x509.canonical_subject(der), {}).setdefault(der, set()).add(_SPIFFE)
    refused: dict[str, str] = {}
    for named in by_name.values():
        by_identifier: dict[bytes | None, _SourcesByCertificate] = {}
        for der, sources in named.items():
            by_identifier.setdefault(x509.subject_key_identifier(der), {})[der] = sources
        without_identifier = by_identifier.pop(None, {})
        if without_identifier:
            # One without an identifier is confused with every other of its name.
            for source in _losing_sources(named, without_identifier, previous):
                refused[source] = "an authority has another's subject and no subject key identifier"
        for alike in by_identifier.values():
            for source in _losing_sources(alike, alike, previous):
                refused[source] = "an authority has another's subject and subject key identifier"
    return refused


# Certificates, each with the sources that have it as an authority.
_SourcesByCertificate = dict[bytes, set[str]]

# Stands among the sources for the super cluster's own authorities. No source has this name.
_SPIFFE = ""


def _losing_sources(
    alike: _SourcesByCertificate, culprits: _SourcesByCertificate, previous: Registry
) -> set[str]:
    """The sources that lose their authority, as OpenSSL cannot distinguish the certificates `alike`
    because of the `culprits` among them."""
    if len(alike) < 2:
        return set()
    owners = set().union(*alike.values())
    if len(owners) == 1:
        # One tenant's old and new certificate. With one key either verifies a leaf; with two keys
        # only the one that OpenSSL happens to try does.
        return owners if len({x509.spki(der) for der in alike}) > 1 else set()
    if any(_was_authority_of(source, der, previous) for der in culprits for source in culprits[der]):
        before = {s for der in alike for s in alike[der] if _was_authority_of(s, der, previous)}
        losers = owners - before
    else:
        losers = set().union(*culprits.values())
    # The super cluster's own authority never loses, even against an earlier one.
    return (losers or owners) - {_SPIFFE}


def _was_authority_of(source: str, der: bytes, previous: Registry) -> bool:
    if source == _SPIFFE:
        return True
    old = previous.sources.get(source)
    return old is not None and der in old.authorities


def _fingerprint(der: bytes) -> str:
    return hashlib.sha256(der).hexdigest()
