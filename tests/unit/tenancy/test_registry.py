# SPDX-License-Identifier: Apache-2.0
"""Tenants that are added, change, become invalid and conflict with each other."""

import json

import pytest
from cryptography.x509 import Name, NameAttribute
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from devkit.pki import Authority, new_key
from tenancy.document import TenantError
from tenancy.identity import fingerprint
from tenancy.registry import (
    Bad,
    Problem,
    RegisteredClient,
    Registry,
    SpiffeTrust,
    dump,
    load,
    merge,
    present_in,
)
from tenancy.tenant import Role, Tenant
from tenancy.x509 import canonical_subject

CA_A, CA_B, SUPER = Authority.create("ca-a"), Authority.create("ca-b"), Authority.create("super")
SPKI_1, SPKI_2, SPKI_3 = "01" * 32, "02" * 32, "03" * 32
API = Role.APISERVER

A = Tenant("ten-a", (CA_A.der,), {SPKI_1: API})
B = Tenant("ten-b", (CA_B.der,), {SPKI_2: Role.METRICS})


def registry(spiffe: SpiffeTrust | None = None, /, **sources: Tenant) -> Registry:
    found, problems = merge(Registry(spiffe=spiffe), sources)
    assert problems == ()
    return found


def test_look_ups_by_anchor_and_public_key() -> None:
    found = registry(SpiffeTrust((SUPER.der,), "super.example"), a=A, b=B)
    assert found.tenants == {"ten-a": A, "ten-b": B}
    assert found.client(fingerprint(CA_A.der), SPKI_1) == RegisteredClient("ten-a", API)
    assert found.client(fingerprint(CA_B.der), SPKI_2) == RegisteredClient("ten-b", Role.METRICS)
    assert found.client(fingerprint(CA_B.der), SPKI_1) is None
    assert found.authorities() == (SUPER.der, CA_A.der, CA_B.der)
    assert (found.is_spiffe_anchor(fingerprint(SUPER.der)), found.trust_domain) == (True, "super.example")
    assert not found.is_spiffe_anchor(fingerprint(CA_A.der))
    assert Registry().authorities() == ()
    assert Registry().trust_domain == ""


def test_a_bad_source_keeps_its_last_good_tenant() -> None:
    new_b = Tenant("ten-b", (CA_B.der,), {SPKI_3: API})
    found, problems = merge(registry(a=A, b=B), {"a": Bad("not YAML"), "b": new_b, "c": Bad("empty")})
    assert found.sources == {"a": A, "b": new_b}
    assert problems == (Problem("a", "ten-a", "not YAML", True), Problem("c", "", "empty", False))


def test_a_removed_source_removes_its_tenant() -> None:
    found, problems = merge(registry(a=A, b=B), {"b": B})
    assert (found.sources, problems) == ({"b": B}, ())
    assert found.client(fingerprint(CA_A.der), SPKI_1) is None


def test_a_source_may_be_renamed_and_change_its_tenant() -> None:
    found, problems = merge(registry(a=A, b=B), {"x": A, "b": Tenant("ten-c", (CA_B.der,), {})})
    assert (set(found.tenants), problems) == ({"ten-a", "ten-c"}, ())


def test_two_sources_may_swap_their_tenants() -> None:
    found, problems = merge(registry(a=A, b=B), {"a": B, "b": A})
    assert (found.sources, problems) == ({"a": B, "b": A}, ())


SAME_KEY = Tenant("ten-a", (CA_B.der,), {SPKI_2: API})
SAME_CLIENT = Tenant("ten-x", (CA_B.der, CA_A.der), {SPKI_1: API})
CLIENT_CLAIM = f"client {SPKI_1} below authority {fingerprint(CA_A.der)}"


@pytest.mark.parametrize(
    ("newcomer", "claim"), [(SAME_KEY, "cluster key ten-a"), (SAME_CLIENT, CLIENT_CLAIM)]
)
def test_a_claim_of_an_existing_tenant_is_refused(newcomer: Tenant, claim: str) -> None:
    found, problems = merge(registry(z=A), {"b": newcomer, "z": A})
    assert found.sources == {"z": A}
    assert problems == (Problem("b", newcomer.key, f"{claim} is another tenant's", False),)


@pytest.mark.parametrize(("other", "claim"), [(SAME_KEY, "cluster key ten-a"), (SAME_CLIENT, CLIENT_CLAIM)])
def test_new_claims_that_conflict_are_both_refused(other: Tenant, claim: str) -> None:
    found, problems = merge(Registry(), {"a": A, "b": other, "c": Tenant("ten-c", (), {})})
    assert set(found.tenants) == {"ten-c"}
    assert problems == (
        Problem("a", "ten-a", f"{claim} is claimed by two tenants", False),
        Problem("b", other.key, f"{claim} is claimed by two tenants", False),
    )


def test_a_conflicting_change_keeps_the_last_good_tenant() -> None:
    found, problems = merge(registry(a=A, b=B), {"a": A, "b": SAME_CLIENT})
    assert found.sources == {"a": A, "b": B}
    assert problems == (Problem("b", "ten-x", f"{CLIENT_CLAIM} is another tenant's", True),)


def test_a_fallback_has_precedence_over_a_newcomer() -> None:
    """a gives ten-a up for ten-b, which is b's; so it stays ten-a, and c cannot have it."""
    wants_b = Tenant("ten-b", (CA_A.der,), {SPKI_1: API})
    wants_a = Tenant("ten-a", (), {})
    found, problems = merge(registry(a=A, b=B), {"a": wants_b, "b": B, "c": wants_a})
    assert found.sources == {"a": A, "b": B}
    assert problems == (
        Problem("a", "ten-b", "cluster key ten-b is another tenant's", True),
        Problem("c", "ten-a", "cluster key ten-a is another tenant's", False),
    )


def test_merging_the_same_again_changes_nothing() -> None:
    incoming: dict[str, Tenant | Bad] = {"a": A, "b": SAME_KEY, "c": Bad("x")}
    once, problems = merge(registry(a=A), incoming)
    assert merge(once, incoming) == (once, problems)


def test_tenants_may_share_an_authority_with_other_keys() -> None:
    other = Tenant("ten-b", (CA_A.der,), {SPKI_2: API})
    assert registry(a=A, b=other).client(fingerprint(CA_A.der), SPKI_2) == RegisteredClient("ten-b", API)


# Authorities of one name, as kubeadm makes them: "kubernetes", everywhere.
WITH = [Authority.create("kubernetes") for _ in range(3)]
WITHOUT = [Authority.create("kubernetes", has_key_identifier=False) for _ in range(2)]
OTHER_CASE = Authority.create("", subject=Name([NameAttribute(NameOID.COMMON_NAME, " Kubernetes")]))
KEY = new_key()
TWIN_1, TWIN_2 = Authority.create("kubernetes", key=KEY), Authority.create("kubernetes", key=KEY)
BARE_KEY = new_key()
BARE_TWINS = [Authority.create("kubernetes", key=BARE_KEY, has_key_identifier=False).der for _ in range(2)]

NO_IDENTIFIER = "an authority has another's subject and no subject key identifier"
SAME_IDENTIFIER = "an authority has another's subject and subject key identifier"


def of(key: str, *authorities: Authority) -> Tenant:
    return Tenant(key, tuple(each.der for each in authorities), {})


def test_the_fixtures_have_one_subject() -> None:
    assert len({canonical_subject(each.der) for each in [*WITH, *WITHOUT, OTHER_CASE, TWIN_1]}) == 1


def test_key_identifiers_separate_authorities_of_one_name() -> None:
    found = registry(a=of("a", WITH[0], TWIN_1), b=of("b", WITH[1]), c=of("c", OTHER_CASE))
    assert len(found.authorities()) == 4


@pytest.mark.parametrize(
    ("before", "incoming", "kept", "problems"),
    [
        # The registry was empty before.
        (
            {},
            {"a": of("a", WITHOUT[0]), "b": of("b", WITHOUT[1])},
            [],
            [("a", NO_IDENTIFIER), ("b", NO_IDENTIFIER)],
        ),
        (
            {},
            {"a": of("a", TWIN_1), "b": of("b", TWIN_2)},
            [],
            [("a", SAME_IDENTIFIER), ("b", SAME_IDENTIFIER)],
        ),
        # The one that lacks the identifier is at fault, not the many that have one.
        (
            {},
            {"a": of("a", WITH[0]), "b": of("b", WITHOUT[0]), "c": of("c", WITH[1])},
            ["a", "c"],
            [("b", NO_IDENTIFIER)],
        ),
        # Who was there before stays, identifier or not.
        (
            {"b": of("b", WITHOUT[0])},
            {"a": of("a", WITHOUT[1]), "b": of("b", WITHOUT[0])},
            ["b"],
            [("a", NO_IDENTIFIER)],
        ),
        (
            {"b": of("b", WITHOUT[0])},
            {"a": of("a", WITH[0]), "b": of("b", WITHOUT[0]), "c": of("c", OTHER_CASE)},
            ["b"],
            [("a", NO_IDENTIFIER), ("c", NO_IDENTIFIER)],
        ),
        (
            {"a": of("a", TWIN_1)},
            {"a": of("a", TWIN_1), "b": of("b", TWIN_2)},
            ["a"],
            [("b", SAME_IDENTIFIER)],
        ),
        (
            {"a": of("a", TWIN_1)},
            {"a": of("a", TWIN_1), "b": of("b", TWIN_1, TWIN_2)},
            ["a"],
            [("b", SAME_IDENTIFIER)],
        ),
        # A tenant's own renewal is not hers to lose to a newcomer that took the old certificate.
        (
            {"a": of("a", TWIN_1, TWIN_2)},
            {"a": of("a", TWIN_1, TWIN_2), "b": of("b", TWIN_1)},
            ["a"],
            [("b", SAME_IDENTIFIER)],
        ),
        # Two tenants with the same certificate stay distinct: the public key decides.
        ({}, {"a": of("a", WITHOUT[0]), "b": of("b", WITHOUT[0])}, ["a", "b"], []),
        # One tenant: a renewed key is fine, two indistinguishable keys are refused.
        ({}, {"a": Tenant("a", (BARE_TWINS[0], BARE_TWINS[1]), {})}, ["a"], []),
        ({}, {"a": of("a", TWIN_1, TWIN_2)}, ["a"], []),
        ({}, {"a": of("a", WITHOUT[0], WITHOUT[1])}, [], [("a", NO_IDENTIFIER)]),
        ({}, {"a": of("a", WITHOUT[0], WITH[0])}, [], [("a", NO_IDENTIFIER)]),
    ],
)
def test_authorities_that_openssl_could_confuse_are_refused(
    before: dict[str, Tenant], incoming: dict[str, Tenant], kept: list[str], problems: list[tuple[str, str]]
) -> None:
    found, reported = merge(registry(**before), incoming)
    assert sorted(found.sources) == kept
    assert [(problem.source, problem.reason) for problem in reported] == problems


def test_the_super_clusters_authority_always_wins() -> None:
    trust = SpiffeTrust((WITHOUT[0].der,), "super.example")
    before = Registry(registry(a=of("a", WITH[0]), b=B).sources, trust)
    found, problems = merge(before, {"a": of("a", WITH[0]), "b": B, "c": of("c", WITHOUT[1])})
    assert found.sources == {"b": B}
    assert {problem.source for problem in problems} == {"a", "c"}


def test_thousands_of_authorities_of_one_name_stay_fast() -> None:
    """kubeadm calls every CA `kubernetes`; comparing each with each would take minutes."""
    tenants = {f"t{n}": Tenant(f"t{n}", (WITH[0].der,), {f"{n:064x}": API}) for n in range(2000)}
    found, problems = merge(Registry(), {**tenants, "x": of("x", WITH[1]), "y": of("y", WITHOUT[0])})
    assert (len(found.tenants), [problem.source for problem in problems]) == (2001, ["y"])


TRUST = SpiffeTrust((SUPER.der,), "super.example")


def test_a_registry_round_trips_through_saved_state() -> None:
    found = registry(TRUST, a=A, b=B)
    assert load(dump(found), TRUST) == (found, ())
    assert load(dump(found), None) == (registry(a=A, b=B), ())


def test_an_unusable_saved_tenant_is_a_problem() -> None:
    state = json.loads(dump(registry(a=A, b=B)))
    state["tenants"]["a"]["kind"] = "x"
    assert load(json.dumps(state).encode(), None) == (
        registry(b=B),
        (Problem("a", "", "kind: must be Tenant", False),),
    )


@pytest.mark.parametrize(
    "state",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}",
        b'{"version":2,"tenants":{}}',
        b'{"version":1}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_other_documents_are_errors(state: bytes) -> None:
    with pytest.raises(TenantError, match=r"^saved state: "):
        load(state, None)


tenants_at_random = st.builds(
    lambda key, authorities, spkis: Tenant(
        key, tuple(authorities), dict.fromkeys(spkis if authorities else (), API)
    ),
    st.sampled_from(["a", "b", "a-b"]),
    st.lists(
        st.sampled_from([each.der for each in [CA_A, *WITH[:2], *WITHOUT, TWIN_1, TWIN_2]]),
        max_size=2,
        unique=True,
    ),
    st.lists(st.sampled_from([SPKI_1, SPKI_2]), max_size=2, unique=True),
)
readings = st.dictionaries(
    st.sampled_from(["f1", "f2", "f3", "f4"]), tenants_at_random | st.just(Bad("bad")), max_size=4
)


@settings(max_examples=300, deadline=None)
@given(st.lists(readings, min_size=1, max_size=5))
def test_no_history_gives_two_tenants_one_claim(history: list[dict[str, Tenant | Bad]]) -> None:
    found = Registry()
    for incoming in history:
        before = found
        found, problems = merge(before, incoming)
        keys = [tenant.key for tenant in found.sources.values()]
        clients = [(der, spki) for t in found.sources.values() for der in t.authorities for spki in t.clients]
        assert len(keys) == len(set(keys))
        assert len(clients) == len(set(clients))
        for source, tenant in found.sources.items():
            assert tenant in (incoming[source], before.sources.get(source))
        # An unchanged registration stays.
        for source, tenant in before.sources.items():
            if incoming.get(source) == tenant:
                assert found.sources[source] == tenant
        # Exactly the sources that are not served as read have a problem.
        assert {p.source for p in problems} == {
            source for source, value in incoming.items() if found.sources.get(source) != value
        }
        assert all(problem.is_kept == (problem.source in found.sources) for problem in problems)
        # The same again changes nothing. The reason may differ: an invalid source that lost its last good
        # state to another is then only invalid.
        again, reported_again = merge(found, incoming)
        assert again == found
        assert [(each.source, each.is_kept) for each in reported_again] == [
            (p.source, p.is_kept) for p in problems
        ]
        assert load(dump(found), None) == (found, ())


def test_a_reading_accounts_for_a_tenant_by_source_or_key() -> None:
    a, b, c, d = (Tenant(key, (), {}) for key in "abcd")
    registry, _ = merge(Registry(), {"a.yaml": a, "b.yaml": b, "c.yaml": c, "d.yaml": d})
    incoming: dict[str, Tenant | Bad] = {
        "a.yaml": Bad("not YAML"),
        "renamed.yaml": b,
        "c.yaml": d,
        "e.yaml": Bad("d"),
    }
    assert present_in(registry, incoming) == {"a.yaml", "b.yaml", "c.yaml", "d.yaml"}
    assert present_in(registry, {"e.yaml": Bad("d")}) == frozenset()
