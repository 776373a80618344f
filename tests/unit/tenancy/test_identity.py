# SPDX-License-Identifier: Apache-2.0
import datetime as dt

import pytest
from cryptography import x509 as reference
from hypothesis import given
from hypothesis import strategies as st

from devkit.pki import Authority, Leaf, common_name
from tenancy.identity import Identified, Unregistered, fingerprint, identify, still_identified
from tenancy.registry import Registry, SpiffeTrust, merge
from tenancy.tenant import Role, Tenant

CA_A, CA_B, SUPER, SHARED = (Authority.create(name) for name in ("ca-a", "ca-b", "super", "shared"))
LEAF_A = CA_A.issue("ten-a")
SCRAPE_A = CA_A.issue("ten-a-scraper")
LEAF_B = CA_B.issue("ten-b")
SHARED_A, SHARED_B = SHARED.issue("x"), SHARED.issue("x")
NOW_S = dt.datetime.now(dt.UTC).timestamp()
TRUST = SpiffeTrust((SUPER.der,), "super.example")


def tenants() -> dict[str, Tenant]:
    return {
        "a.yaml": Tenant(
            "ten-a",
            (CA_A.der, SHARED.der),
            {
                LEAF_A.spki_sha256: Role.APISERVER,
                SCRAPE_A.spki_sha256: Role.METRICS,
                SHARED_A.spki_sha256: Role.APISERVER,
            },
        ),
        "b.yaml": Tenant(
            "ten-b",
            (CA_B.der, SHARED.der),
            {LEAF_B.spki_sha256: Role.APISERVER, SHARED_B.spki_sha256: Role.APISERVER},
        ),
    }


REGISTRY, PROBLEMS = merge(Registry(spiffe=TRUST), tenants())


def test_the_registry_of_these_tests_has_no_problems() -> None:
    assert PROBLEMS == ()


@pytest.mark.parametrize(
    ("leaf", "authority", "tenant", "role"),
    [
        (LEAF_A, CA_A, "ten-a", Role.APISERVER),
        (SCRAPE_A, CA_A, "ten-a", Role.METRICS),
        (LEAF_B, CA_B, "ten-b", Role.APISERVER),
        (SHARED_A, SHARED, "ten-a", Role.APISERVER),
        (SHARED_B, SHARED, "ten-b", Role.APISERVER),
        # A renewal with the same key is the same client.
        (CA_A.issue("renewed", key=LEAF_A.key), CA_A, "ten-a", Role.APISERVER),
        # So is the same key with another subject.
        (CA_A.issue("ten-b", key=LEAF_A.key), CA_A, "ten-a", Role.APISERVER),
    ],
)
def test_a_registered_public_key_is_identified(
    leaf: Leaf, authority: Authority, tenant: str, role: Role
) -> None:
    found = identify((leaf.der, authority.der), REGISTRY, NOW_S)
    assert found == Identified(tenant, role, leaf.spki_sha256, fingerprint(authority.der))
    assert isinstance(found, Identified)
    assert still_identified(found, REGISTRY)


def test_an_intermediate_authority_changes_nothing() -> None:
    found = identify((LEAF_A.der, CA_B.der, SUPER.der, CA_A.der), REGISTRY, NOW_S)
    assert isinstance(found, Identified)
    assert found.tenant == "ten-a"


@pytest.mark.parametrize(
    ("leaf", "authority"),
    [
        # An unregistered leaf of a registered CA: an administrator's, a minted one.
        (CA_A.issue("kubernetes-admin", organization="system:masters"), CA_A),
        (CA_B.issue("ten-a"), CA_B),
        # A registered key below another tenant's CA: the other signed a certificate for it.
        (CA_B.issue("ten-a", key=LEAF_A.key), CA_B),
        (CA_A.issue("ten-b", key=LEAF_B.key), CA_A),
        # An authority of no tenant.
        (LEAF_A, Authority.create("ca-a")),
        # Subjects are nothing.
        (CA_B.issue("", subject=common_name("ten-b", "ten-a")), CA_B),
        (CA_B.issue("", subject=common_name("ten-b\nten-a")), CA_B),
        (CA_B.issue("", subject=reference.Name([])), CA_B),
        (CA_B.issue("TEN-A"), CA_B),
        (CA_B.issue("../ten-a"), CA_B),
        # A SPIFFE name counts below the super cluster's authority only.
        (CA_B.issue("x", uris=["spiffe://super.example/tenant/ten-a/apiserver"]), CA_B),
    ],
)
def test_other_chains_are_not_identified(leaf: Leaf, authority: Authority) -> None:
    chain = (leaf.der, authority.der)
    assert identify(chain, REGISTRY, NOW_S) == Unregistered(
        "public key is not registered",
        leaf.spki_sha256,
    )


@pytest.mark.parametrize(("word", "role"), [("apiserver", Role.APISERVER), ("metrics", Role.METRICS)])
def test_a_spiffe_name_is_identified(word: str, role: Role) -> None:
    leaf = SUPER.issue("x", uris=[f"spiffe://super.example/tenant/ten-a/{word}"], sans_dns=["a.example"])
    found = identify((leaf.der, SUPER.der), REGISTRY, NOW_S)
    assert found == Identified("ten-a", role, leaf.spki_sha256, fingerprint(SUPER.der), "super.example")
    assert isinstance(found, Identified)
    assert still_identified(found, REGISTRY)


@pytest.mark.parametrize(
    ("uris", "reason"),
    [
        ([], "not exactly one URI name"),
        (["spiffe://super.example/tenant/ten-a/apiserver"] * 2, "not exactly one URI name"),
        (
            [
                "spiffe://super.example/tenant/ten-a/apiserver",
                "spiffe://super.example/tenant/ten-b/apiserver",
            ],
            "not exactly one URI name",
        ),
        (["spiffe://other.example/tenant/ten-a/apiserver"], "URI name is not that of a tenant"),
        (["SPIFFE://super.example/tenant/ten-a/apiserver"], "URI name is not that of a tenant"),
        (["spiffe://SUPER.example/tenant/ten-a/apiserver"], "URI name is not that of a tenant"),
        (["spiffe://super.example:443/tenant/ten-a/apiserver"], "URI name is not that of a tenant"),
        (["spiffe://u@super.example/tenant/ten-a/apiserver"], "URI name is not that of a tenant"),
        (["https://super.example/tenant/ten-a/apiserver"], "URI name is not that of a tenant"),
        (["spiffe://super.example/tenant/ten-a/apiserver/"], "URI name is not that of a tenant"),
        (["spiffe://super.example/tenant/ten-a/apiserver/more"], "URI name is not that of a tenant"),
        (["spiffe://super.example/tenant/ten-a/"], "URI name is not that of a tenant"),
        (["spiffe://super.example/tenant/ten-a/apiserver?x=y"], "URI name is not that of a tenant"),
        (["spiffe://super.example/tenant/ten-a/apiserver#x"], "URI name is not that of a tenant"),
        (["spiffe://super.example/tenant/ten-a/Apiserver"], "URI name is not that of a tenant"),
        (["spiffe://super.example/tenant/ten-a/admin"], "URI name is not that of a tenant"),
        (["spiffe://super.example/tenant/ten-a"], "URI name is not that of a tenant"),
        (["spiffe://super.example/x/tenant/ten-a/apiserver"], "URI name is not that of a tenant"),
        (["spiffe://super.example/tenant//ten-a/apiserver"], "URI name is not that of a tenant"),
        (["spiffe://super.example/tenant/ten%2Da/apiserver"], "URI name is that of no registered tenant"),
        (["spiffe://super.example/tenant/ten-c/apiserver"], "URI name is that of no registered tenant"),
        (["spiffe://super.example/tenant/TEN-A/apiserver"], "URI name is that of no registered tenant"),
        (["spiffe://super.example/tenant//apiserver"], "URI name is that of no registered tenant"),
    ],
)
def test_other_spiffe_names_are_not_identified(uris: list[str], reason: str) -> None:
    leaf = SUPER.issue("ten-a", uris=uris)
    assert identify((leaf.der, SUPER.der), REGISTRY, NOW_S) == Unregistered(reason, leaf.spki_sha256)


def test_without_spiffe_trust_names_identify_no_tenant() -> None:
    registry, _ = merge(Registry(), tenants())
    leaf = SUPER.issue("x", uris=["spiffe:///tenant/ten-a/apiserver"])
    assert identify((leaf.der, SUPER.der), registry, NOW_S) == Unregistered(
        "public key is not registered", leaf.spki_sha256
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ten-a/apiserver", "ten-a"),
        ("ten-a/metrics", None),
        ("ten-b/apiserver", None),
        ("ten-c/apiserver", "ten-a"),
    ],
)
def test_public_key_and_spiffe_name_must_agree(name: str, expected: str | None) -> None:
    leaf = SUPER.issue("x", uris=[f"spiffe://super.example/tenant/{name}"])
    given_tenants = tenants()
    given_tenants["a.yaml"] = Tenant("ten-a", (SUPER.der,), {leaf.spki_sha256: Role.APISERVER})
    registry, problems = merge(Registry(spiffe=TRUST), given_tenants)
    assert problems == ()
    found = identify((leaf.der, SUPER.der), registry, NOW_S)
    if expected is None:
        assert found == Unregistered("public key and SPIFFE name are of different callers", leaf.spki_sha256)
    else:
        assert isinstance(found, Identified)
        assert (found.tenant, found.trust_domain) == (expected, "")


def test_unreadable_chains_are_not_identified() -> None:
    assert identify((), REGISTRY, NOW_S) == Unregistered("no certificate")
    found = identify((b"\x30\x03\x02\x01\x01", CA_A.der), REGISTRY, NOW_S)
    assert isinstance(found, Unregistered)
    assert (found.reason.startswith("leaf certificate: "), found.spki) == (True, "")


@given(st.lists(st.binary(max_size=60), max_size=3).map(tuple))
def test_arbitrary_bytes_identify_no_tenant(chain: tuple[bytes, ...]) -> None:
    assert isinstance(identify(chain, REGISTRY, NOW_S), Unregistered)


def identified(chain: tuple[bytes, ...]) -> Identified:
    found = identify(chain, REGISTRY, NOW_S)
    assert isinstance(found, Identified)
    return found


def after(changed: dict[str, Tenant], trust: SpiffeTrust | None = TRUST) -> Registry:
    registry, _ = merge(Registry(REGISTRY.sources, trust), changed)
    return registry


def test_still_identified_after_a_change_of_the_registry() -> None:
    by_key = identified((LEAF_A.der, CA_A.der))
    by_name = identified(
        (SUPER.issue("x", uris=["spiffe://super.example/tenant/ten-a/apiserver"]).der, SUPER.der)
    )
    now = tenants()
    a, b = now["a.yaml"], now["b.yaml"]
    without_leaf = Tenant("ten-a", a.authorities, {SCRAPE_A.spki_sha256: Role.METRICS})
    other_role = Tenant("ten-a", a.authorities, {LEAF_A.spki_sha256: Role.METRICS})
    new_authority = Tenant("ten-a", (CA_A.der, Authority.create("next").der), a.clients)
    rotated = Tenant("ten-a", (Authority.create("next").der,), a.clients)
    other_domain = SpiffeTrust((SUPER.der,), "other.example")
    other_anchor = SpiffeTrust((Authority.create("super2").der,), "super.example")
    table = [
        (after(now), True, True),
        (after({"a.yaml": new_authority, "b.yaml": b}), True, True),
        (after({"renamed.yaml": a, "b.yaml": b}), True, True),
        (after({"b.yaml": b}), False, False),
        (after({"a.yaml": without_leaf, "b.yaml": b}), False, True),
        (after({"a.yaml": other_role, "b.yaml": b}), False, True),
        (after({"a.yaml": rotated, "b.yaml": b}), False, True),
        (after(now, other_domain), True, False),
        (after(now, other_anchor), True, False),
        (after(now, None), True, False),
        (Registry(), False, False),
    ]
    outcomes = [(still_identified(by_key, new), still_identified(by_name, new)) for new, _, _ in table]
    assert outcomes == [(key, name) for _, key, name in table]


def test_both_leaves_of_a_rotation_are_identified() -> None:
    old = CA_A.issue("ten-a", not_after=dt.datetime.now(dt.UTC) + dt.timedelta(minutes=5))
    new = CA_A.issue("ten-a")
    both = Tenant("ten-a", (CA_A.der,), {old.spki_sha256: Role.APISERVER, new.spki_sha256: Role.APISERVER})
    registry, _ = merge(Registry(), {"a.yaml": both})
    for leaf in (old, new):
        found = identify((leaf.der, CA_A.der), registry, NOW_S)
        assert isinstance(found, Identified)
        assert found.tenant == "ten-a"


# ---- validity


def at(offset_s: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(int(NOW_S) + offset_s, dt.UTC)


INTERMEDIATE = Authority.create("intermediate", not_after=at(600))
SHORT = CA_A.issue("short", key=LEAF_A.key, not_after=at(900))
NOT_YET = CA_A.issue("not yet", key=LEAF_A.key, not_before=at(60), not_after=at(900))
OVER = CA_A.issue("over", key=LEAF_A.key, not_before=at(-900), not_after=at(-1))


@pytest.mark.parametrize(
    ("chain", "end_s"),
    [
        ((SHORT.der, CA_A.der), 900),
        ((SHORT.der, INTERMEDIATE.der, CA_A.der), 600),
        ((LEAF_A.der, INTERMEDIATE.der, CA_A.der), 600),
    ],
)
def test_an_identity_expires_with_its_chain(chain: tuple[bytes, ...], end_s: float) -> None:
    found = identify(chain, REGISTRY, NOW_S)
    assert isinstance(found, Identified)
    assert found.not_after_s == int(NOW_S) + end_s
    assert not found.is_expired(int(NOW_S) + end_s)
    assert found.is_expired(int(NOW_S) + end_s + 1)
    assert isinstance(identify(chain, REGISTRY, NOW_S + end_s + 1), Unregistered)
    # A renewed certificate is the same caller's.
    assert found == identify((LEAF_A.der, CA_A.der), REGISTRY, NOW_S)


@pytest.mark.parametrize("leaf", [NOT_YET, OVER], ids=["not yet", "over"])
def test_an_expired_certificate_identifies_no_tenant(leaf: Leaf) -> None:
    found = identify((leaf.der, CA_A.der), REGISTRY, NOW_S)
    assert found == Unregistered("certificate is not valid now", LEAF_A.spki_sha256)


def test_a_spiffe_identity_expires() -> None:
    uris = ["spiffe://super.example/tenant/ten-a/apiserver"]
    leaf = SUPER.issue("x", uris=uris, not_after=at(300))
    found = identify((leaf.der, SUPER.der), REGISTRY, NOW_S)
    assert isinstance(found, Identified)
    assert found.not_after_s == int(NOW_S) + 300


def test_an_unreadable_validity_identifies_no_tenant() -> None:
    found = identify((LEAF_A.der, b"\x30\x03\x02\x01\x01", CA_A.der), REGISTRY, NOW_S)
    assert isinstance(found, Unregistered)
