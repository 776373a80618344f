# SPDX-License-Identifier: Apache-2.0
"""Which step a rotation takes next, and whom it waits for."""

import itertools

import msgspec
import pytest

from tenancy import keys
from tenant_operator.pki import rotation
from tenant_operator.pki.facts import CertificateFacts, SecretFacts
from tenant_operator.pki.rotation import (
    DROPPED,
    PLANS,
    REISSUED,
    TRUSTED,
    Asked,
    Consumer,
    ConsumerAnswer,
    RotationDecision,
    RotationPlan,
    RotationState,
    RotationStep,
)
from tests.unit.tenant_operator.pki.control_planes import NOW

HOUR = 3600.0
CLUSTER = PLANS["cluster-ca"]
# Of two consumers with replicas, who both verify and show.
_BOTH = (Consumer.ETCD, Consumer.API_SERVER)
PLAIN = RotationPlan("plain", "plain", _BOTH, (_BOTH,))
TOKENS, ENCRYPTION = PLANS["service-account-keys"], PLANS["encryption-key"]
BOTH = RotationState("old", "new", phase=TRUSTED, token="first")
NEW = RotationState("new", previous="old", phase=REISSUED, token="first")


def answer(trusts: str, uses: str = "") -> ConsumerAnswer:
    return ConsumerAnswer(frozenset(trusts.split()), frozenset(uses.split()))


def decision(step: str, *waits: str, at: float = 0.0) -> RotationDecision:
    return RotationDecision(RotationStep(step), waits, at)


@pytest.mark.parametrize(
    ("state", "request_", "is_due", "expected"),
    [
        (RotationState("old"), "", False, "Wait"),
        (RotationState("old"), "first", False, "Begin"),
        (RotationState("old", token="first"), "first", False, "Wait"),
        (RotationState("old", token="first"), "second", False, "Begin"),
        (RotationState("old", token="first"), "", False, "Wait"),
        (RotationState("old", token="first"), "first", True, "Begin"),
    ],
)
def test_a_rotation_begins_by_a_new_request_or_by_age(
    state: RotationState, request_: str, is_due: bool, expected: str
) -> None:
    found = rotation.next_step(PLAIN, state, {}, NOW, request=request_, is_due=is_due)
    assert found == decision(expected)


PLAIN_ANSWERS: list[tuple[Asked, RotationDecision]] = [
    ({}, decision("Wait", "etcd", "apiserver")),
    ({Consumer.ETCD: None, Consumer.API_SERVER: {}}, decision("Wait", "etcd")),
    ({Consumer.ETCD: {}, Consumer.API_SERVER: {}}, decision("Promote")),
    (
        {
            Consumer.ETCD: {"etcd-0": answer("old new"), "etcd-1": None, "etcd-2": answer("old")},
            Consumer.API_SERVER: {"pod-1": answer("new")},
        },
        decision("Wait", "etcd/etcd-1", "etcd/etcd-2", "apiserver/pod-1"),
    ),
    (
        {
            Consumer.ETCD: {"etcd-0": answer("old new")},
            Consumer.API_SERVER: {"pod-1": answer("old new more")},
        },
        decision("Promote"),
    ),
]


@pytest.mark.parametrize(("asked", "expected"), PLAIN_ANSWERS)
def test_the_next_key_signs_once_all_trust_both(asked: Asked, expected: RotationDecision) -> None:
    """Unknown is not yes: of a consumer, and of which consumers there are."""
    assert rotation.next_step(PLAIN, BOTH, asked, NOW, request="second") == expected


DROP_ANSWERS: list[tuple[Asked, RotationDecision]] = [
    ({}, decision("Wait", "etcd", "apiserver")),
    (
        {
            Consumer.ETCD: {"etcd-0": answer("old new", "new")},
            Consumer.API_SERVER: {"pod-1": answer("old new", "old"), "pod-2": answer("old new", "old new")},
        },
        decision("Wait", "apiserver/pod-1", "apiserver/pod-2"),
    ),
    (
        {
            Consumer.ETCD: {"etcd-0": answer("old new", "new")},
            Consumer.API_SERVER: {"pod-1": answer("old", "new")},
        },
        decision("Wait", "apiserver/pod-1"),
    ),
    (
        {
            Consumer.ETCD: {"etcd-0": answer("old new", "new")},
            Consumer.API_SERVER: {"pod-1": answer("old new", "new")},
        },
        decision("Drop"),
    ),
]


@pytest.mark.parametrize(("asked", "expected"), DROP_ANSWERS)
def test_the_previous_key_goes_once_none_uses_it(asked: Asked, expected: RotationDecision) -> None:
    assert rotation.next_step(PLAIN, NEW, asked, NOW) == expected


def test_a_chained_authority_signs_at_once() -> None:
    """Those who have loaded the former one accept what the next one signs."""
    assert rotation.next_step(PLANS["etcd-ca"], BOTH, {}, NOW) == decision("Promote")
    assert rotation.next_step(PLANS["etcd-ca"], NEW, {}, NOW) == decision("Wait", "etcd", "apiserver")


def test_single_consumers_are_named_without_a_slash() -> None:
    names = rotation.next_step(CLUSTER, BOTH, {}, NOW).waits_for
    assert names == (
        "apiserver",
        "controller-manager",
        "kube-root-ca.crt",
        "extension-apiserver-authentication",
    )
    asked: Asked = {
        Consumer.API_SERVER: {"pod-1": answer("old new")},
        Consumer.CONTROLLER_MANAGER: {"pod-2": answer("old new")},
        Consumer.ROOT_CERTIFICATES: {"": answer("old new"), "shop": answer("old")},
        Consumer.AUTHENTICATION: {"": answer("old")},
    }
    assert rotation.next_step(CLUSTER, BOTH, asked, NOW) == decision(
        "Wait", "kube-root-ca.crt/shop", "extension-apiserver-authentication"
    )


def test_client_certificates_are_revoked_by_a_person() -> None:
    """Who cannot be asked is waited for until then, and nobody else is left out."""
    ready: Asked = {consumer: {"": answer("old new", "new")} for consumer in Consumer}
    marked = msgspec.structs.replace(NEW, since=NOW)
    waits = decision("Wait", "client certificates that the previous authority signed", at=NOW + HOUR)
    assert rotation.next_step(CLUSTER, NEW, ready, NOW, held_s=HOUR) == decision("Mark")
    assert rotation.next_step(CLUSTER, marked, ready, NOW, held_s=HOUR) == waits
    assert rotation.next_step(CLUSTER, marked, ready, NOW, held_s=HOUR, revoked="former") == waits
    assert rotation.next_step(CLUSTER, marked, ready, NOW, held_s=HOUR, revoked="first") == decision("Drop")
    late = {**ready, Consumer.SYNCER: {"": None}}
    assert rotation.next_step(CLUSTER, marked, late, NOW, held_s=HOUR, revoked="first") == decision(
        "Wait", "vc-syncer"
    )


_KEPT = [
    (plan, phase, consumer)
    for plan in PLANS.values()
    for phase, asked in (
        (TRUSTED, {*plan.verifiers}),
        (REISSUED, {*plan.verifiers, *itertools.chain(*plan.users)}),
        (DROPPED, {*plan.forgotten_by}),
    )
    for consumer in sorted(asked & {*rotation.TENANT_WAITS_S})
]


@pytest.mark.parametrize(("plan", "phase", "consumer"), _KEPT)
@pytest.mark.parametrize("is_revoked", [True, False])
@pytest.mark.parametrize("is_answered", [True, False])
def test_a_tenant_delays_each_phase_for_so_long(
    plan: RotationPlan, phase: str, consumer: Consumer, is_revoked: bool, is_answered: bool
) -> None:
    """An object that stays as it was, or that nobody can read."""
    state = RotationState("new", "old", "", phase, "first", phase_since=NOW)
    if phase != TRUSTED:
        state = msgspec.structs.replace(state, next="", previous="old")
    there = answer("new" if phase == DROPPED else "old new", "new")
    asked: dict[Consumer, dict[str, ConsumerAnswer | None]] = {each: {"a": there} for each in Consumer}
    wrong = answer("old", "old") if is_answered else None
    asked[consumer] = {"": there, "shop": wrong}
    wait_s = rotation.REVOKED_WAIT_S if is_revoked else rotation.TENANT_WAITS_S[consumer]
    most_s = min(wait_s, 400 * 86400.0)
    revoked = "first" if is_revoked else ""
    before = rotation.next_step(plan, state, asked, NOW + most_s - 1, revoked=revoked)
    assert before.waits_for == (f"{consumer}/shop",)
    assert before.step in (RotationStep.WAIT, RotationStep.CLEAN)
    after = rotation.next_step(plan, state, asked, NOW + most_s, revoked=revoked)
    goes_on = {TRUSTED: "Promote", REISSUED: "Drop", DROPPED: "Forget"}[phase]
    assert after == (decision(goes_on) if wait_s == most_s else before)
    # Of a phase that an earlier version began nobody knows for how long it has waited.
    unknown = msgspec.structs.replace(state, phase_since=0.0)
    assert rotation.next_step(plan, unknown, asked, NOW + most_s, revoked=revoked) == before


@pytest.mark.parametrize("consumer", [each for each in Consumer if each not in rotation.TENANT_WAITS_S])
def test_nobody_else_is_given_up(consumer: Consumer) -> None:
    for plan in PLANS.values():
        if consumer in plan.verifiers:
            state = RotationState("old", "new", phase=TRUSTED, token="first", phase_since=NOW)
            late = {each: {"": answer("old new")} for each in Consumer} | {consumer: {"a": None}}
            found = rotation.next_step(plan, state, late, NOW + 400 * 86400.0, revoked="first")
            assert found == decision("Wait", f"{consumer}/a")


def test_a_dropped_authority_is_forgotten_by_all() -> None:
    """What kube-apiserver publishes is cleaned last: one that trusts it would publish it again."""
    dropped = RotationState("new", previous="old", phase=DROPPED)
    asked: dict[Consumer, dict[str, ConsumerAnswer | None]] = {
        Consumer.API_SERVER: {"pod-1": answer("new"), "pod-2": answer("old new")},
        Consumer.CONTROLLER_MANAGER: {"pod-3": None},
        Consumer.ROOT_CERTIFICATES: {"": answer("new")},
        Consumer.AUTHENTICATION: {"": answer("old new")},
    }
    assert rotation.next_step(CLUSTER, dropped, asked, NOW) == decision(
        "Wait", "apiserver/pod-2", "controller-manager/pod-3"
    )
    asked |= {Consumer.API_SERVER: {"pod-1": answer("new")}, Consumer.CONTROLLER_MANAGER: {}}
    assert rotation.next_step(CLUSTER, dropped, asked, NOW) == decision(
        "Clean", "extension-apiserver-authentication"
    )
    asked[Consumer.AUTHENTICATION] = {"": answer("new")}
    assert rotation.next_step(CLUSTER, dropped, asked, NOW) == decision("Forget")


def test_tokens_of_the_previous_key_end_by_themselves() -> None:
    """First all sign by the next key, and tokens without an end are gone; then the life of a token."""
    asked: dict[Consumer, dict[str, ConsumerAnswer | None]] = {
        Consumer.API_SERVER: {"pod-1": answer("old new", "old")},
        Consumer.TOKEN_SECRETS: {"": answer("", "old")},
    }
    assert rotation.next_step(TOKENS, NEW, asked, NOW, held_s=HOUR) == decision("Wait", "apiserver/pod-1")
    asked[Consumer.API_SERVER] = {"pod-1": answer("old new", "new")}
    assert rotation.next_step(TOKENS, NEW, asked, NOW, held_s=HOUR) == decision("Wait", "token-secrets")
    asked[Consumer.TOKEN_SECRETS] = {"": answer("", "new")}
    assert rotation.next_step(TOKENS, NEW, asked, NOW, held_s=HOUR) == decision("Mark")
    marked = msgspec.structs.replace(NEW, since=NOW)
    assert rotation.next_step(TOKENS, marked, asked, NOW + HOUR - 1, held_s=HOUR) == decision(
        "Wait", "tokens that the previous key signed", at=NOW + HOUR
    )
    assert rotation.next_step(TOKENS, marked, asked, NOW + HOUR, held_s=HOUR) == decision("Drop")


def test_secrets_are_rewritten_once_all_encrypt_by_the_next_key() -> None:
    asked: dict[Consumer, dict[str, ConsumerAnswer | None]] = {
        Consumer.API_SERVER: {"pod-1": answer("old new", "new"), "pod-2": answer("old new", "old")},
        Consumer.STORED_SECRETS: {"": answer("", "old new")},
    }
    assert rotation.next_step(ENCRYPTION, NEW, asked, NOW) == decision("Wait", "apiserver/pod-2")
    asked[Consumer.API_SERVER]["pod-2"] = answer("old new", "new")
    assert rotation.next_step(ENCRYPTION, NEW, asked, NOW) == decision("Rewrite", "stored-secrets")
    asked[Consumer.STORED_SECRETS] = {"": answer("", "new")}
    assert rotation.next_step(ENCRYPTION, NEW, asked, NOW) == decision("Drop")


def test_nothing_is_rewritten_while_nobody_can_be_asked() -> None:
    """A tenant that sleeps has no API server, and the rotation goes on when it wakes."""
    asleep: Asked = {Consumer.API_SERVER: {}, Consumer.STORED_SECRETS: None}
    assert rotation.next_step(ENCRYPTION, NEW, asleep, NOW) == decision("Wait", "stored-secrets")


def certificate(key_id: str) -> CertificateFacts:
    return CertificateFacts(NOW, NOW, key_id * 2, key_id)


@pytest.mark.parametrize(
    ("secret", "expected"),
    [
        (SecretFacts({}, {}, {"tls.crt": certificate("a")}), RotationState("a")),
        (
            SecretFacts(
                {keys.ROTATION_PHASE: TRUSTED, keys.ROTATION_TOKEN: "first"},
                {},
                {"tls.crt": certificate("a"), "next.crt": certificate("b")},
            ),
            RotationState("a", "b", "", TRUSTED, "first"),
        ),
        (
            SecretFacts(
                {keys.ROTATION_PHASE: REISSUED, keys.ROTATION_SINCE: "17"},
                {},
                {"tls.crt": certificate("b"), "previous.crt": certificate("a")},
            ),
            RotationState("b", "", "a", REISSUED, "", 17.0),
        ),
        (
            SecretFacts({keys.KEY_IDS: "a,b", keys.ROTATION_PHASE: TRUSTED, keys.ROTATION_PHASE_SINCE: "18"}),
            RotationState("a", "b", "", TRUSTED, phase_since=18.0),
        ),
        (SecretFacts({keys.KEY_IDS: "a"}), RotationState("a")),
        (
            SecretFacts({keys.KEY_IDS: "a,b", keys.ROTATION_PHASE: TRUSTED}),
            RotationState("a", "b", "", TRUSTED),
        ),
        (SecretFacts({keys.KEY_IDS: "b,,a", keys.ROTATION_SINCE: "x"}), RotationState("b", "", "a")),
        (SecretFacts(), None),
        (SecretFacts({keys.KEY_IDS: ""}), None),
        (SecretFacts({}, {}, {"tls.crt": None}), None),
    ],
)
def test_a_state_is_read_from_its_secret(secret: SecretFacts, expected: RotationState | None) -> None:
    assert rotation.state_of(secret) == expected
