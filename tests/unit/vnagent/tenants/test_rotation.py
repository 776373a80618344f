# SPDX-License-Identifier: Apache-2.0
"""Replaced certificates of a tenant's Secrets stay registered for a while, over restarts too."""

import pytest

from devkit.pki import Authority, Leaf
from tenancy.registry import Registry, merge
from tenancy.tenant import Role, Tenant
from vnagent.tenants.rotation import Registered, Rotation, dump_rotations, load_rotations, rotate, tenant_of

KEY = "tenant-1-70b001-test"
AUTHORITY = Authority.create("kubernetes")
LEAF = AUTHORITY.issue(KEY)
METRICS = "ab" * 32


def registered(authority: Authority = AUTHORITY, leaf: Leaf = LEAF, key: str = KEY) -> Registered:
    return Registered(key, (authority.der,), leaf.spki_sha256, {}, "cluster.local")


def test_a_replaced_certificate_overlaps() -> None:
    renewed = AUTHORITY.issue(KEY)
    state = rotate(Rotation(), registered(), 0.0, 600.0)
    assert tenant_of(registered(), state) == Tenant(KEY, (AUTHORITY.der,), {LEAF.spki_sha256: Role.APISERVER})
    state = rotate(state, registered(leaf=renewed), 100.0, 600.0)
    assert state.next_end_s == 700.0
    both = {LEAF.spki_sha256: Role.APISERVER, renewed.spki_sha256: Role.APISERVER}
    assert tenant_of(registered(leaf=renewed), state).clients == both
    # Reading again in between does not prolong it.
    state = rotate(state, registered(leaf=renewed), 699.0, 600.0)
    assert state.next_end_s == 700.0
    state = rotate(state, registered(leaf=renewed), 700.0, 600.0)
    assert tenant_of(registered(leaf=renewed), state).clients == {renewed.spki_sha256: Role.APISERVER}
    assert state.next_end_s is None


def test_a_certificate_that_returns_is_not_retired() -> None:
    renewed = AUTHORITY.issue(KEY)
    state = rotate(Rotation(), registered(), 0.0, 600.0)
    state = rotate(state, registered(leaf=renewed), 1.0, 600.0)
    state = rotate(state, registered(), 2.0, 600.0)
    assert dict(state.retired_spkis) == {renewed.spki_sha256: 602.0}


def test_a_replaced_authority_overlaps_with_its_clients() -> None:
    other = Authority.create("kubernetes")
    renewed = other.issue(KEY)
    state = rotate(Rotation(), registered(), 0.0, 600.0)
    state = rotate(state, registered(other, renewed), 1.0, 600.0)
    tenant = tenant_of(registered(other, renewed), state)
    assert tenant.authorities == (other.der, AUTHORITY.der)
    assert set(tenant.clients) == {LEAF.spki_sha256, renewed.spki_sha256}
    assert merge(Registry(), {"s": tenant})[1] == ()


def test_confusable_authorities_have_no_overlap() -> None:
    """Without key identifiers OpenSSL would take either, and the registry refuse the tenant."""
    old = Authority.create("kubernetes", has_key_identifier=False)
    new = Authority.create("kubernetes", has_key_identifier=False)
    renewed = new.issue(KEY)
    state = rotate(Rotation(), registered(old), 0.0, 600.0)
    state = rotate(state, registered(new, renewed), 1.0, 600.0)
    tenant = tenant_of(registered(new, renewed), state)
    assert tenant.authorities == (new.der,)
    assert merge(Registry(), {"s": tenant})[1] == ()


def test_another_key_starts_a_new_rotation() -> None:
    state = rotate(Rotation(), registered(), 0.0, 600.0)
    state = rotate(state, registered(leaf=AUTHORITY.issue("x"), key="other"), 1.0, 600.0)
    assert state.retired_spkis == {}
    assert state.retired_authorities == {}


def test_overlap_zero_retires_at_once() -> None:
    state = rotate(Rotation(), registered(), 0.0, 0.0)
    state = rotate(state, registered(leaf=AUTHORITY.issue(KEY)), 1.0, 0.0)
    assert state.next_end_s is None


ROTATION = Rotation(KEY, (b"new",), "02" * 32, {b"old": 700.0}, {"01" * 32: 650.0})


@pytest.mark.parametrize(
    ("later_s", "authorities", "spkis"),
    [
        (0.0, {b"old": 50.0 + 600.0}, {"01" * 32: 50.0 + 550.0}),
        (100.0, {b"old": 50.0 + 500.0}, {"01" * 32: 50.0 + 450.0}),
        (549.0, {b"old": 50.0 + 51.0}, {"01" * 32: 50.0 + 1.0}),
        (550.0, {b"old": 50.0 + 50.0}, {}),
        (600.0, {}, {}),
        (1e9, {}, {}),
        (-3600.0, {b"old": 50.0 + 600.0}, {"01" * 32: 50.0 + 600.0}),  # the wall clock was set back
    ],
)
def test_rotations_continue_after_a_restart(
    later_s: float, authorities: dict[bytes, float], spkis: dict[str, float]
) -> None:
    """Saved at 100 s of one monotonic clock, loaded at 50 s of another, `later_s` apart by the wall clock."""
    wall_s = 1_700_000_000.0
    saved = dump_rotations({"a/vc/uid": ROTATION}, wall_s - 100.0)
    loaded = load_rotations(saved, wall_s + later_s - 50.0, 50.0, 600.0)
    assert loaded == {"a/vc/uid": Rotation(KEY, (b"new",), "02" * 32, authorities, spkis)}


@pytest.mark.parametrize(
    "saved", [b"", b"[]", b"{", b'{"a": 1}', b'{"a": {"key": "k"}}', b"\xff", b"[" * 100_000]
)
def test_damaged_rotations_are_refused(saved: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        load_rotations(saved, 0.0, 0.0, 600.0)
