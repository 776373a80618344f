# SPDX-License-Identifier: Apache-2.0
"""Rotations whose consumers disagree: each replica reads late, does not answer, or answers when the Secret
has another version already. No key is promoted or dropped before each of them has shown that it may be, and
the rotation ends once all have."""

from __future__ import annotations

import random

import msgspec
import pytest

from tenancy import keys
from tenant_operator.core import rotations
from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.plan import TenantPlan
from tenant_operator.core.steps import Rotate
from tenant_operator.pki.rotation import (
    PLANS,
    Asked,
    Consumer,
    ConsumerAnswer,
    RotationPlan,
    RotationState,
    RotationStep,
    state_of,
)
from tests.unit.tenant_operator.core.kept_fields import kept
from tests.unit.tenant_operator.core.test_rotations import served

DAY = 86_400.0
PLANS_MADE = 45
SEEDS = range(2)
# What the plan itself knows of the others: it reads their Secrets.
ANSWERING = (
    Consumer.API_SERVER,
    Consumer.CONTROLLER_MANAGER,
    Consumer.ETCD,
    Consumer.VN_AGENT,
    Consumer.ROOT_CERTIFICATES,
    Consumer.AUTHENTICATION,
    Consumer.TOKEN_SECRETS,
)
WHATS = sorted(rotations.SUPPORTED)


class TooEarlyError(AssertionError):
    """A step was taken that a consumer was not ready for."""


class DisagreeingConsumers:
    """`read` is what each replica does now, whether it answers or not."""

    def __init__(self, what: str, seed: int) -> None:
        self.what = what
        self.plan: RotationPlan = PLANS[what]
        self.chance = random.Random(seed)  # noqa: S311 - an order of events, which a seed repeats
        self.world = served()
        present = self.world.asked(what)
        self.read = {
            consumer: {
                str(number): self.one(present, consumer) for number in range(self.chance.randint(1, 3))
            }
            for consumer in ANSWERING
        }
        self.late: list[tuple[int, ProbeResult]] = []
        self.steps: list[RotationStep] = []

    @staticmethod
    def one(asked: Asked, consumer: Consumer) -> ConsumerAnswer:
        (found,) = (asked[consumer] or {}).values()
        assert found is not None
        return found

    @property
    def state(self) -> RotationState:
        ref = self.world.rotating(self.what)
        found = state_of(kept(ref, self.world.objects[ref]).secret)
        assert found is not None
        return found

    def run(self) -> None:
        annotations = self.world.cluster["metadata"].setdefault("annotations", {})
        annotations[f"{keys.ROTATE_PREFIX}{self.what}"] = "one"
        for number in range(PLANS_MADE):
            made = self.world.plan()
            for step in made.steps:
                if isinstance(step, Rotate) and step.rotation.what == self.what:
                    self.check(step.rotation.step)
                    self.steps.append(step.rotation.step)
                self.world.carry_out(step)
            self.reload()
            self.answer(number, made)
            self.world.now_s += DAY / 3 if self.chance.random() < 0.1 else 3.0

    def reload(self) -> None:
        """Some read what there is now. One may be gone, and another one come."""
        self.world.answers.pop(self.what, None)
        present = self.world.asked(self.what)
        for consumer, replicas in self.read.items():
            for name in replicas:
                if self.chance.random() < 0.4:
                    replicas[name] = self.one(present, consumer)
            if self.chance.random() < 0.1:
                del replicas[self.chance.choice(sorted(replicas))]
                replicas[str(self.chance.getrandbits(32))] = self.one(present, consumer)

    def answer(self, number: int, made: TenantPlan) -> None:
        """Some say nothing; a result may come after others, of when it was asked for."""
        name = f"rotation/{self.what}"
        self.world.answers[self.what] = {
            **{consumer: {} for consumer in Consumer},
            **{
                consumer: None
                if self.chance.random() < 0.04
                else {
                    each: None if self.chance.random() < 0.04 else answer for each, answer in replicas.items()
                }
                for consumer, replicas in self.read.items()
            },
        }
        before = self.world.probes.get(name)
        self.world.finish(made)
        after = self.world.probes.get(name)
        if after is not None and after is not before and self.chance.random() < 0.3:
            self.late.append((number + self.chance.randint(1, 4), after))
            self.world.probes.pop(name)
            if before is not None:
                self.world.probes[name] = before
        for due, result in [each for each in self.late if each[0] <= number]:
            self.late.remove((due, result))
            self.world.probes[name] = result

    def check(self, step: RotationStep) -> None:
        state, plan = self.state, self.plan
        both = {state.current, state.next}
        for consumer, replicas in self.read.items():
            is_user = any(consumer in group for group in plan.users)
            for name, found in replicas.items():
                is_early = (
                    (step is RotationStep.PROMOTE and consumer in plan.verifiers and not both <= found.trusts)
                    or (step is RotationStep.DROP and is_user and state.previous in found.uses)
                    or (
                        step is RotationStep.DROP
                        and consumer in plan.verifiers
                        and state.current not in found.trusts
                    )
                    or (
                        step is RotationStep.FORGET
                        and consumer in plan.forgotten_by
                        and state.previous in found.trusts
                    )
                )
                if is_early:
                    raise TooEarlyError(f"{step} of {self.what} before {consumer}/{name}, after {self.steps}")

    def finish(self) -> None:
        """All agree, answer at once, and what is held has ended."""
        self.world.answers.clear()
        for _ in range(2):
            self.world.now_s += DAY
            self.world.run()
            self.world.run()


@pytest.mark.parametrize(("what", "seed"), [(what, seed) for what in WHATS for seed in SEEDS])
def test_no_key_goes_before_all_are_ready(what: str, seed: int) -> None:
    consumers = DisagreeingConsumers(what, seed)
    before = consumers.state.current
    consumers.run()
    consumers.finish()
    state = consumers.state
    assert (state.phase, state.next, state.previous, state.token) == ("", "", "", "one")
    assert state.current != before


# A plan that does not ask them: the checks above are worth something.
FAULTS: dict[str, dict[str, object]] = {
    "verifiers": {"verifiers": ()},
    "users": {"users": (), "held": ""},
    "forgotten by": {"forgotten_by": (Consumer.GATEWAY,)},
}


def asked_of(plan: RotationPlan, fault: str) -> tuple[Consumer, ...]:
    """Those whom the fault leaves out."""
    found = {
        "verifiers": plan.verifiers,
        "users": tuple(each for group in plan.users for each in group),
        "forgotten by": plan.forgotten_by,
    }
    return found[fault]


@pytest.mark.parametrize(
    ("what", "fault"),
    [
        (what, fault)
        for what in WHATS
        for fault in FAULTS
        if any(each in ANSWERING for each in asked_of(PLANS[what], fault))
    ],
)
def test_plan_that_does_not_ask_is_caught(what: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def runs_too_early(seed: int) -> bool:
        consumers = DisagreeingConsumers(what, seed)
        monkeypatch.setitem(PLANS, what, msgspec.structs.replace(consumers.plan, **FAULTS[fault]))
        try:
            consumers.run()
        except TooEarlyError:
            return True
        finally:
            monkeypatch.undo()
        return False

    assert any(runs_too_early(seed) for seed in range(10))
