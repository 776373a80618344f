# SPDX-License-Identifier: Apache-2.0
"""Rotations under consumers that reload late, crash and come back, and an operator that is killed anywhere.

A small world for each plan: replicas load some version of the Secret, never an older one than they had; the
operator asks, decides and writes as the product does. After each event, whatever any replica shows is
accepted by every replica that verifies it, as is each token that has not expired and each value that is
stored.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import pytest

from tenant_operator.pki import catalog, issuing, rotating
from tenant_operator.pki.catalog import AuthoritySpec
from tenant_operator.pki.rotation import (
    DROPPED,
    PLANS,
    Consumer,
    ConsumerAnswer,
    RotationPlan,
    RotationState,
    RotationStep,
    next_step,
    state_of,
)
from tests.unit.tenant_operator.pki import control_planes
from tests.unit.tenant_operator.pki.control_planes import NOW

TOKEN_LIFE_S = 40.0
EVENTS = 400
SEEDS = range(25)
# Those with several replicas, which are also added and removed; the others are one object each.
REPLICAS = (Consumer.API_SERVER, Consumer.ETCD, Consumer.CONTROLLER_MANAGER, Consumer.VN_AGENT)

PLANE = control_planes.control_plane()
AUTHORITIES = {spec.secret: spec for spec in catalog.authorities(PLANE)}


class RefusedError(AssertionError):
    """A client, a token or a stored value that was valid is refused."""


@dataclass(frozen=True)
class SecretVersion:
    """One version of the Secret; `leaf` is the id of the key that signed the leaf in use with it."""

    data: dict[str, bytes]
    annotations: dict[str, str]
    state: RotationState
    leaf: str

    @property
    def trusted(self) -> frozenset[str]:
        previous = "" if self.state.phase == DROPPED else self.state.previous
        return frozenset(filter(None, (self.state.current, self.state.next, previous)))


@dataclass
class LoadedReplica:
    version: int
    is_up: bool = True


@dataclass
class RotatingWorld:
    plan: RotationPlan
    random: random.Random
    versions: list[SecretVersion] = field(default_factory=list)
    replicas: dict[Consumer, dict[str, LoadedReplica]] = field(default_factory=dict)
    now: float = NOW
    request: str = "first"
    tokens: list[tuple[str, float]] = field(default_factory=list)
    lasting_tokens: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    steps: list[RotationStep] = field(default_factory=list)
    certifiers: dict[str, str] = field(default_factory=dict)
    """Of an authority whose certificate all show behind their own: the one before, which signed it."""
    decided_by: RotationPlan | None = None
    """A plan with a fault; None: its own."""

    def __post_init__(self) -> None:
        self._write(*first_of(self.plan))
        consumers = {*self.plan.verifiers, *(each for group in self.plan.users for each in group)}
        for consumer in sorted(consumers - {Consumer.STORED_SECRETS, Consumer.TOKEN_SECRETS}):
            names = ("0", "1") if consumer in REPLICAS else ("",)
            self.replicas[consumer] = {name: LoadedReplica(0) for name in names}

    @property
    def is_by_leaves(self) -> bool:
        """Whether programs show a leaf that the key signed, which is issued in a write of its own."""
        return isinstance(spec_of(self.plan), AuthoritySpec)

    @property
    def newest(self) -> SecretVersion:
        return self.versions[-1]

    # What happens.

    def events(self) -> Iterator[None]:
        choices = (
            self.operate,
            self.operate,
            self.reload,
            self.reload,
            self.crash,
            self.come_back,
            self.scale,
        )
        while True:
            self.now += self.random.random() * 3
            self.random.choice((*choices, self.use, self.issue_leaf, self.ask_again))()
            yield

    def operate(self) -> None:
        """The operator reconciles. It may be killed before it writes, and an old one may write late."""
        decision = self.decide(is_complete=False)
        if self.random.random() < 0.3:
            return
        self.take(decision)
        if self.random.random() < 0.2:
            self.take(decision)

    def decide(self, *, is_complete: bool) -> RotationStep:
        asked = {
            consumer: None
            if not is_complete and self.random.random() < 0.01
            else self.answers(consumer, is_complete)
            for consumer in (*self.replicas, Consumer.STORED_SECRETS, Consumer.TOKEN_SECRETS)
        }
        found = next_step(
            self.decided_by or self.plan,
            self.newest.state,
            asked,
            self.now,
            request=self.request,
            held_s=TOKEN_LIFE_S,
        )
        return found.step

    def answers(self, consumer: Consumer, is_complete: bool) -> dict[str, ConsumerAnswer | None]:
        if consumer is Consumer.STORED_SECRETS:
            return {"": ConsumerAnswer(uses=frozenset(self.stored))}
        if consumer is Consumer.TOKEN_SECRETS:
            return {"": ConsumerAnswer(uses=frozenset(self.lasting_tokens))}
        return {
            name: self.answer(consumer, each) if is_complete or self.random.random() < 0.97 else None
            for name, each in self.replicas[consumer].items()
        }

    def answer(self, consumer: Consumer, replica: LoadedReplica) -> ConsumerAnswer | None:
        if not replica.is_up:
            return None
        version = self.versions[replica.version]
        return ConsumerAnswer(version.trusted, frozenset({self.shown(version)}))

    def take(self, step: RotationStep) -> None:
        if step is RotationStep.CLEAN:
            self.replicas[Consumer.AUTHENTICATION][""].version = len(self.versions) - 1
        elif step is RotationStep.REWRITE:
            up = [each for each in self.replicas[Consumer.API_SERVER].values() if each.is_up]
            self.stored = {self.shown(self.versions[each.version]) for each in up[:1]} or self.stored
        elif step is not RotationStep.WAIT:
            newest = self.newest
            found = rotating.rotate(
                self.plan,
                step,
                newest.data,
                newest.annotations,
                self.now,
                request=self.request,
                spec=spec_of(self.plan),
            )
            if found is not None:
                self.steps.append(step)
                self._write(*found, leaf=newest.leaf)

    def issue_leaf(self) -> None:
        newest = self.newest
        if newest.leaf != newest.state.current:
            self._write(newest.data, newest.annotations)

    def reload(self) -> None:
        """A mounted Secret arrives late, and some versions never do."""
        self._load([each for each in self.all_replicas() if each.is_up])

    def crash(self) -> None:
        self.random.choice(self.all_replicas()).is_up = False

    def come_back(self) -> None:
        self._load([each for each in self.all_replicas() if not each.is_up])

    def _load(self, replicas: list[LoadedReplica]) -> None:
        for replica in replicas:
            if self.random.random() < 0.5:
                newest = len(self.versions) - 1
                replica.version = self.random.choice((newest, self.random.randint(replica.version, newest)))
                replica.is_up = True

    def scale(self) -> None:
        """A new pod mounts what is there; an old one is gone."""
        consumer = self.random.choice([each for each in self.replicas if each in REPLICAS] or [None])
        if consumer is None:
            return
        found = self.replicas[consumer]
        if len(found) > 1 and self.random.random() < 0.5:
            del found[self.random.choice(sorted(found))]
        elif len(found) < 4:
            found[str(self.random.getrandbits(32))] = LoadedReplica(len(self.versions) - 1)

    def use(self) -> None:
        """API servers sign tokens and write Secrets, each by the key that it has loaded."""
        for replica in self.replicas.get(Consumer.API_SERVER, {}).values():
            if replica.is_up:
                key = self.shown(self.versions[replica.version])
                self.tokens.append((key, self.now + TOKEN_LIFE_S))
                self.stored.add(key)

    def ask_again(self) -> None:
        """A person requests another rotation, and tokens without an end are signed again."""
        if self.newest.state.phase == "" and self.newest.state.token == self.request:
            self.request = str(self.random.getrandbits(32))
        self.lasting_tokens = {self.newest.state.current}

    # What must hold.

    def check(self) -> None:
        for consumer in {*self.plan.verifiers, *self.plan.forgotten_by}:
            for name, verifier in self.replicas[consumer].items():
                if verifier.is_up:
                    trusted = self.versions[verifier.version].trusted
                    for shown, who in self.presented():
                        if not {shown, self.certifiers.get(shown, shown)} & trusted:
                            raise RefusedError(f"{consumer}/{name} refuses {who} after {self.steps}")

    def presented(self) -> Iterator[tuple[str, str]]:
        for consumer in {each for group in self.plan.users for each in group} & self.replicas.keys():
            for name, user in self.replicas[consumer].items():
                if user.is_up:
                    yield self.shown(self.versions[user.version]), f"{consumer}/{name}"
        if self.plan.held:
            yield from ((key, "a token") for key, end in self.tokens if self.now < end)
            yield from ((key, "a token without an end") for key in self.lasting_tokens)
        if self.plan.what == "encryption-key":
            yield from ((key, "a stored value") for key in self.stored)

    def finish(self) -> None:
        """All are up, reload and answer: the rotation ends."""
        for _ in range(12):
            self.issue_leaf()
            for replica in self.all_replicas():
                replica.is_up, replica.version = True, len(self.versions) - 1
            self.lasting_tokens = {self.newest.state.current}
            self.check()
            self.take(self.decide(is_complete=True))
            self.now += TOKEN_LIFE_S / 2

    def shown(self, version: SecretVersion) -> str:
        return version.leaf if self.is_by_leaves else version.state.current

    def all_replicas(self) -> list[LoadedReplica]:
        return [replica for found in self.replicas.values() for replica in found.values()]

    def _write(self, data: dict[str, bytes], annotations: dict[str, str], leaf: str = "") -> None:
        state = state_of(control_planes.kept(data, annotations))
        assert state is not None
        if "chain.crt" in data and not self.plan.verifiers:
            self.certifiers.setdefault(state.current, state.previous)
        self.versions.append(SecretVersion(data, annotations, state, leaf or state.current))


def spec_of(plan: RotationPlan) -> AuthoritySpec | None:
    return AUTHORITIES.get(plan.what)


def first_of(plan: RotationPlan) -> tuple[dict[str, bytes], dict[str, str]]:
    if plan.what == "service-account-keys":
        return rotating.new_service_account_keys()
    if plan.what == "encryption-key":
        return rotating.new_encryption_config()
    spec = spec_of(plan)
    assert spec is not None
    return dict(issuing.authority_data(issuing.new_authority(spec, NOW))), {}


def world_of(what: str, seed: int) -> RotatingWorld:
    return RotatingWorld(PLANS[what], random.Random(seed))  # noqa: S311 - events, which a seed repeats


def run(what: str, seed: int, **faults: object) -> RotatingWorld:
    world = world_of(what, seed)
    world.decided_by = msgspec.structs.replace(PLANS[what], **faults)
    for _, _ in zip(range(EVENTS), world.events(), strict=False):
        world.check()
    return world


@pytest.mark.parametrize("what", PLANS)
def test_nothing_valid_is_refused_by_anyone(what: str) -> None:
    """And each rotation ends, once all are up."""
    begun = 0
    for seed in SEEDS:
        world = run(what, seed)
        world.finish()
        begun += world.steps.count(RotationStep.BEGIN)
        state = world.newest.state
        assert (state.phase, state.next, state.previous) == ("", "", ""), (seed, world.steps)
        assert state.token == world.request
    assert begun > len(SEEDS)


FAULTS: tuple[dict[str, object], ...] = ({"verifiers": ()}, {"users": (), "held": ""})


@pytest.mark.parametrize(
    ("what", "faults"),
    # Of one whose next key all accept at once nobody is asked first.
    [(what, each) for what in PLANS for each in FAULTS if PLANS[what].verifiers or "users" in each],
    ids=str,
)
def test_a_plan_that_forgets_to_ask_is_caught(what: str, faults: dict[str, object]) -> None:
    """What the checks above are worth: without a question, something valid is refused."""
    assert any(is_refused(what, seed, faults) for seed in SEEDS)


def is_refused(what: str, seed: int, faults: dict[str, object]) -> bool:
    try:
        run(what, seed, **faults)
    except RefusedError:
        return True
    return False


def steps_of(what: str, lost: int) -> tuple[list[RotationStep], RotationState, int]:
    """The steps of one rotation in which the operator is killed before write number `lost`."""
    world = world_of(what, 0)
    decided = 0
    for _ in range(16):
        world.issue_leaf()
        for replica in world.all_replicas():
            replica.version = len(world.versions) - 1
        world.lasting_tokens = {world.newest.state.current}
        step = world.decide(is_complete=True)
        if step is not RotationStep.WAIT:
            decided += 1
            if decided - 1 != lost:
                world.take(step)
        world.now += TOKEN_LIFE_S / 2
        world.check()
    return world.steps, world.newest.state, decided


@pytest.mark.parametrize("what", PLANS)
def test_killed_between_any_two_steps_the_end_is_the_same(what: str) -> None:
    steps, state, decided = steps_of(what, -1)
    assert (state.phase, state.next, state.previous, state.token) == ("", "", "", "first")
    assert steps[0] is RotationStep.BEGIN
    assert steps[-1] is (RotationStep.FORGET if PLANS[what].forgotten_by else RotationStep.DROP)
    for lost in range(decided):
        again, end, count = steps_of(what, lost)
        assert again == steps
        assert count == decided + 1
        assert (end.phase, end.next, end.previous, end.token) == ("", "", "", "first")
