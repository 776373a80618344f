# SPDX-License-Identifier: Apache-2.0
"""Certificates in rotation: after a Secret was replaced, its old certificates stay registered for a while."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tenancy import x509
from tenancy.tenant import Role, Tenant

# How long replaced certificates stay registered. The kubelet takes up to two minutes to update a mounted
# Secret; then the apiserver's pod must restart.
OVERLAP_S = 600.0


@dataclass(frozen=True, slots=True)
class Registered:
    """What one VirtualCluster and its objects register, before the overlap of a rotation.

    `authorities` (DER) and `apiserver_spki` come from the Secrets and may be rotated. `extra` are
    the clients that an operator listed; one that is taken off the list is removed at once.
    """

    key: str
    authorities: tuple[bytes, ...]
    apiserver_spki: str
    extra: Mapping[str, Role]
    cluster_domain: str


@dataclass(frozen=True, slots=True)
class Rotation:
    """The current certificates of one tenant's Secrets, and the retired ones.

    An apiserver reads its certificate at start: after the Secret has changed it shows the
    old one until it restarts, and must not be refused meanwhile. `retired_...` have the replaced
    certificates with the time until which they stay registered.
    """

    key: str = ""
    authorities: tuple[bytes, ...] = ()
    apiserver_spki: str = ""
    retired_authorities: Mapping[bytes, float] = field(default_factory=dict)
    retired_spkis: Mapping[str, float] = field(default_factory=dict)

    @property
    def next_end_s(self) -> float | None:
        """When the next retired certificate expires from the registration."""
        return min([*self.retired_authorities.values(), *self.retired_spkis.values()], default=None)


def rotate(before: Rotation, current: Registered, now_s: float, overlap_s: float) -> Rotation:
    """The rotation after a reading at `now_s`. A tenant with another key starts anew."""
    if before.key != current.key:
        return Rotation(current.key, current.authorities, current.apiserver_spki)
    end_s = now_s + overlap_s
    authorities = dict(before.retired_authorities) | {
        der: end_s for der in before.authorities if der not in current.authorities
    }
    spkis = dict(before.retired_spkis)
    if before.apiserver_spki != current.apiserver_spki:
        spkis[before.apiserver_spki] = end_s
    return Rotation(
        current.key,
        current.authorities,
        current.apiserver_spki,
        {
            der: at
            for der, at in authorities.items()
            if at > now_s and der not in current.authorities and not _is_ambiguous(der, current.authorities)
        },
        {spki: at for spki, at in spkis.items() if at > now_s and spki != current.apiserver_spki},
    )


def tenant_of(current: Registered, rotation: Rotation) -> Tenant:
    """The tenant with its current and its retired certificates."""
    clients = (
        dict.fromkeys(rotation.retired_spkis, Role.APISERVER)
        | dict(current.extra)
        | {current.apiserver_spki: Role.APISERVER}
    )
    authorities = (*current.authorities, *rotation.retired_authorities)
    return Tenant(current.key, authorities, clients, current.cluster_domain)


class _SavedRotation(msgspec.Struct, rename="camel"):
    """Times are of the wall clock; certificates are base64 in JSON."""

    key: str
    authorities: tuple[bytes, ...]
    apiserver_spki: str
    retired_authorities: tuple[tuple[bytes, float], ...] = ()
    retired_spkis: dict[str, float] = {}


def dump_rotations(rotations: Mapping[str, Rotation], wall_minus_now_s: float) -> bytes:
    """The rotations for the saved state. `wall_minus_now_s` converts their times to the wall clock."""
    return msgspec.json.encode(
        {
            source: _SavedRotation(
                each.key,
                each.authorities,
                each.apiserver_spki,
                tuple((der, at + wall_minus_now_s) for der, at in each.retired_authorities.items()),
                {spki: at + wall_minus_now_s for spki, at in each.retired_spkis.items()},
            )
            for source, each in rotations.items()
        }
    )


def load_rotations(
    saved: bytes, wall_minus_now_s: float, now_s: float, overlap_s: float
) -> dict[str, Rotation]:
    """The rotations that `dump_rotations` saved, without those that ended meanwhile. Raises ValueError.

    If the wall clock moved back, the overlap is clamped to `overlap_s`.
    """

    def left(ends: Iterable[tuple[Any, float]]) -> dict[Any, float]:
        found = ((past, min(at - wall_minus_now_s, now_s + overlap_s)) for past, at in ends)
        return {past: at for past, at in found if at > now_s}

    try:
        found = msgspec.json.decode(saved, type=dict[str, _SavedRotation])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return {
        source: Rotation(
            each.key,
            each.authorities,
            each.apiserver_spki,
            left(each.retired_authorities),
            left(each.retired_spkis.items()),
        )
        for source, each in found.items()
    }


def _is_ambiguous(old: bytes, current: Iterable[bytes]) -> bool:
    """Whether OpenSSL could confuse `old` with one of `current` that has another key.

    The registry refuses a tenant with two such authorities, as it would verify by chance. So the
    new one replaces the old one at once.
    """
    subject, identifier = x509.canonical_subject(old), x509.subject_key_identifier(old)
    for der in current:
        other = x509.subject_key_identifier(der)
        is_alike = identifier is None or other is None or identifier == other
        if is_alike and x509.canonical_subject(der) == subject and x509.spki(der) != x509.spki(old):
            return True
    return False
