# SPDX-License-Identifier: Apache-2.0
"""The machine of a vNode: its table, and what holds after any events in any order."""

import random
from typing import Any

import pytest

from syncer.core.plan import Conflict, Wait
from syncer.vnodes.machine import (
    FIRST_BACKOFF_S,
    IDLE_GRACE_S,
    MAX_BACKOFF_S,
    BindingAsked,
    DeletionBegun,
    LeaseMade,
    LeaseRenewed,
    NodeAbsent,
    NodeDeleted,
    NodeDrifted,
    NodeFound,
    NodeMatches,
    NodeVanished,
    NodeWritten,
    NothingToWrite,
    PodGone,
    PodsBound,
    PolicyChanged,
    RemovalEnded,
    StepFailed,
    SuperNodeChanged,
    SuperNodeFacts,
    Tick,
    TurnBegun,
    VNodeAction,
    VNodeEvent,
    VNodeMachine,
)

KNOWN = SuperNodeFacts(version=3, is_synced=True)
WRITTEN = (NodeFound("n"), NodeWritten(3, 7, "12"))
WHY = Wait("VNodeNotReady", "node n: the tenant's API server does not answer")
ENQUEUE, APPLY, REMOVE, FORGET = VNodeAction


def _after(*events: VNodeEvent, is_covered: bool = False, facts: SuperNodeFacts = KNOWN) -> VNodeMachine:
    machine = VNodeMachine(0.0, is_covered=is_covered)
    for event in events:
        machine.handle(event, facts, 0.0)
    return machine


@pytest.mark.parametrize(
    ("before", "event", "at_s", "action"),
    [
        ((), BindingAsked(), 0, ENQUEUE),
        ((), PodsBound(("p",)), 0, ENQUEUE),
        ((BindingAsked(), *WRITTEN), BindingAsked(), 0, None),
        ((BindingAsked(), StepFailed(WHY)), BindingAsked(), 0, None),
        ((BindingAsked(), StepFailed(WHY)), Tick(), FIRST_BACKOFF_S, ENQUEUE),
        ((BindingAsked(), StepFailed(WHY)), SuperNodeChanged(False), 0, ENQUEUE),
        ((PodsBound(("p",)), *WRITTEN), NodeVanished(), 0, ENQUEUE),
        ((PodsBound(("p",)), *WRITTEN), NodeDrifted(), 0, ENQUEUE),
        ((PodsBound(("p",)), *WRITTEN, NodeDrifted()), NodeMatches("n", 7), 0, None),
        ((PodsBound(("p",)), *WRITTEN), Tick(), 1e6, None),
        ((PodsBound(("p",)), *WRITTEN), TurnBegun(), 0, APPLY),
        ((PodsBound(("p",)), *WRITTEN, PodGone("p")), Tick(), IDLE_GRACE_S - 1, None),
        ((PodsBound(("p",)), *WRITTEN, PodGone("p")), Tick(), IDLE_GRACE_S, ENQUEUE),
        ((PodsBound(("p",)), *WRITTEN, PodGone("p")), TurnBegun(), IDLE_GRACE_S, REMOVE),
        ((PodsBound(("p",)), PodsBound(("q",)), PodGone("p")), TurnBegun(), IDLE_GRACE_S, APPLY),
        (
            (PodsBound(("p",)), PodGone("p"), DeletionBegun(), NodeDeleted()),
            RemovalEnded(),
            IDLE_GRACE_S,
            FORGET,
        ),
        (
            (PodsBound(("p",)), PodGone("p"), DeletionBegun(), PodsBound(("q",))),
            RemovalEnded(),
            IDLE_GRACE_S,
            None,
        ),
        ((), TurnBegun(), 0, None),
        ((), TurnBegun(), IDLE_GRACE_S, REMOVE),
        ((PodsBound(("p",)), LeaseRenewed()), LeaseMade(), 0, ENQUEUE),
        ((PodsBound(("p",)),), LeaseMade(), 0, None),
    ],
)
def test_what_an_event_leads_to(
    before: tuple[VNodeEvent, ...], event: VNodeEvent, at_s: float, action: VNodeAction | None
) -> None:
    assert _after(*before).handle(event, KNOWN, at_s) is action


def test_nothing_is_removed_before_all_is_known() -> None:
    machine = _after(BindingAsked())
    assert machine.handle(TurnBegun(), SuperNodeFacts(3, is_synced=False), 1e6) is APPLY


def test_a_policy_that_covers_it_keeps_it_and_shows_it() -> None:
    machine = _after(is_covered=True)
    assert machine.handle(TurnBegun(), KNOWN, 1e6) is APPLY
    machine.handle(SuperNodeChanged(False), KNOWN, 1e6)
    assert machine.handle(TurnBegun(), KNOWN, 1e6 + IDLE_GRACE_S) is REMOVE


def test_failures_have_longer_backoffs_up_to_the_longest() -> None:
    machine = _after(PodsBound(("p",)))
    at_s, waits = 0.0, []
    for _ in range(9):
        machine.handle(StepFailed(WHY), KNOWN, at_s, 1.0)
        step = next(each for each in range(100) if not machine.is_delayed(at_s + each))
        waits.append(step)
        at_s += step
    assert waits[0] == FIRST_BACKOFF_S
    assert waits == sorted(waits)
    assert waits[-1] == MAX_BACKOFF_S
    assert machine.outcome == WHY
    machine.handle(NodeWritten(3, 7, "12"), KNOWN, at_s)
    found: object = machine.outcome
    assert (found, machine.is_delayed(at_s)) == (None, False)


class _Surroundings:
    """A super node and a tenant's Node, and whoever acts on what the machine answers."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.now_s = 0.0
        self.facts = SuperNodeFacts(1, is_synced=False)
        self.machine = VNodeMachine(0.0, is_covered=chance.random() < 0.3)
        self.pods: set[str] = set()
        self.covered = self.machine.is_covered
        self.was_used = False
        self.is_queued = False
        self.is_over = False
        self.node: int | None = None
        """The form of the tenant's Node: the super node's version when it was written."""

    def send(self, event: VNodeEvent) -> VNodeAction | None:
        action = self.machine.handle(event, self.facts, self.now_s, self._chance.random())
        self.is_queued |= action is ENQUEUE
        return action

    def act(self) -> None:
        """Something happens."""
        pod = self._chance.choice("abc")
        match self._chance.randrange(12):
            case 0:
                self.was_used = True
                self.pods.add(pod)
                self.send(PodsBound((pod,)))
            case 1:
                self.pods.discard(pod)
                self.send(PodGone(pod))
            case 2:
                self.was_used = True
                self.send(BindingAsked())
            case 3:
                self.change_super_node(self._chance.choice((0, self.facts.version + 1)))
            case 4:
                self.covered = not self.covered
                self.send(PolicyChanged())
                self.send(SuperNodeChanged(self.covered))
            case 5:
                self.node = None
                self.send(NodeVanished())
            case 6 if self.node is not None and self.machine.counts("1000"):
                self.node = -1
                self.send(NodeDrifted())
            case 7:
                self.facts = SuperNodeFacts(self.facts.version, is_synced=True)
            case 8:
                self.send(self._chance.choice((LeaseRenewed(), LeaseMade())))
            case 9:
                self.turn(may_fail=True)
            case _:
                self.pass_time(self._chance.choice((1.0, 30.0, IDLE_GRACE_S)))

    def change_super_node(self, version: int) -> None:
        self.facts = SuperNodeFacts(version, self.facts.is_synced)
        self.send(SuperNodeChanged(self.covered))

    def pass_time(self, by_s: float) -> None:
        self.now_s += by_s
        self.send(Tick())

    def turn(self, *, may_fail: bool) -> None:
        """What a worker does. Other events may come while it waits for answers."""
        if not self.is_queued or self.is_over:
            return
        self.is_queued = False
        action = self.send(TurnBegun())
        if action is REMOVE:
            self.check_removal()
            self.send(DeletionBegun())
            if may_fail and self._chance.random() < 0.3:
                self.send(StepFailed(WHY))
                return
            self.node = None
            if may_fail and self._chance.random() < 0.3:
                self.was_used = True
                self.pods.add("late")
                self.send(PodsBound(("late",)))
            self.send(NodeDeleted())
            self.is_over = self.send(RemovalEnded()) is FORGET
            assert not (self.is_over and self.pods)
        elif action is APPLY:
            assert self.was_used or self.covered
            version = self.facts.version
            if version == 0:
                self.send(DeletionBegun())
                self.node = None
                self.send(NodeAbsent())
                self.send(StepFailed(WHY))
            elif may_fail and self._chance.random() < 0.3:
                self.send(StepFailed(self._chance.choice((WHY, Conflict("the tenant's own")))))
            elif self.machine.version and self.machine.form == version:
                self.send(NothingToWrite(version))
            else:
                self.node = version
                self.send(NodeFound("n"))
                self.send(NodeWritten(version, version, "1"))

    def check_removal(self) -> None:
        assert self.facts.is_synced
        assert not self.pods
        assert not self.covered


@pytest.mark.parametrize("seed", range(200))
def test_after_any_events_it_comes_to_rest_where_it_should(seed: int) -> None:
    """Never removed in use, never shown without a reason; and in the end as the super node is, or gone."""
    chance: Any = random.Random(seed)  # noqa: S311 - a repeatable one
    world = _Surroundings(chance)
    for _ in range(60):
        world.act()
        if world.is_over:
            return
    world.facts = SuperNodeFacts(world.facts.version, is_synced=True)
    world.change_super_node(world.facts.version + 1)
    for _ in range(4):
        world.turn(may_fail=False)
        world.pass_time(IDLE_GRACE_S)
    if world.pods or (world.covered and not world.is_over):
        assert not world.is_over
        assert world.machine.is_settled(world.facts)
        assert world.node == world.facts.version
        assert not world.is_queued
    else:
        assert world.is_over
        assert world.node is None
