# SPDX-License-Identifier: Apache-2.0
"""Changes worlds while all sides follow, and asks about what was touched."""

from collections.abc import Iterator, Sequence

from tests.k8s.oracle.changes import Change, draw_change
from tests.k8s.oracle.draw import ZONES, Json
from tests.k8s.oracle.following import Followers
from tests.k8s.oracle.judging import judge
from tests.k8s.oracle.laboratory import Laboratory, Pair
from tests.k8s.oracle.questions import Question, of_service
from tests.k8s.oracle.volley import Flow

_BATCH = 20
# Changes meet each other where many of them are in one world.
_WORLDS = 40
_OTHERS = 60


class Changing:
    """A run of changes; `steps` are for the caller to take."""

    def __init__(self, laboratory: Laboratory) -> None:
        self._laboratory = laboratory
        self._choose = laboratory.chooser("changes")
        worlds = laboratory.worlds
        self._changing = self._choose.sample(range(len(worlds)), min(_WORLDS, len(worlds)))
        self._asked = [
            laboratory.questions(pair, (worlds[i] for i in self._changing)) for pair in laboratory.pairs
        ]
        self.followers: list[Followers] = []
        self.made = 0

    def steps(self, count: int) -> Iterator[list[str]]:
        """Make `count` changes, some at a time; after each time what is wrong, and what was wrong before.
        Once in the middle the nodes move to other zones."""
        for pair, asked in zip(self._laboratory.pairs, self._asked, strict=True):
            yield judge(self._laboratory, pair, asked)
        self.followers = [
            Followers(self._laboratory, pair, asked)
            for pair, asked in zip(self._laboratory.pairs, self._asked, strict=True)
        ]
        middle = count // 2
        for number in range(0, count, _BATCH):
            if number <= middle < number + _BATCH:
                yield self._move_nodes()
            yield self._change(min(_BATCH, count - number))

    def _change(self, count: int) -> list[str]:
        before = dict(self._laboratory.store.services)
        changes = [change for _ in range(count) if (change := self._some_change()) is not None]
        self.made += len(changes)
        self._laboratory.follow()
        touched = {(change.after.namespace, change.service) for change in changes}
        problems = []
        for pair, followers in zip(self._laboratory.pairs, self.followers, strict=True):
            asked = self._questions(pair, touched, before)
            problems += judge(self._laboratory, pair, asked, may_forget=False)
            problems += followers.follow(changes)
        if problems:
            said = "\n".join(problems)
            of_these = [one for one in changes if f"{one.after.namespace}/{one.service}" in said]
            problems.append("after " + "\n".join(one.whole() for one in of_these or changes))
        return problems

    def _some_change(self) -> Change | None:
        """Make one; None if the API server does not want it."""
        number = self._choose.choice(self._changing)
        change = draw_change(self._choose, self._laboratory.worlds[number])
        if not self._laboratory.store.apply(change):
            return None
        self._laboratory.worlds[number] = change.after
        return change

    def _questions(
        self, pair: Pair, touched: set[tuple[str, str]], before: dict[tuple[str, str], Json]
    ) -> list[Question]:
        """About Services as they were and as they are, and about some that were left alone."""
        found: dict[Flow, Question] = {}
        for services in (self._laboratory.store.services, before):
            for key in sorted(touched & services.keys()):
                for one in of_service(services[key], pair.place):
                    found.setdefault(one.flow, one)
        worlds = self._choose.sample(self._laboratory.worlds, min(_WORLDS, len(self._laboratory.worlds)))
        others = self._laboratory.questions(pair, worlds)
        for one in self._choose.sample(others, min(_OTHERS, len(others))):
            found.setdefault(one.flow, one)
        return list(found.values())

    def _move_nodes(self) -> list[str]:
        """Each node's zone becomes the next one; everything in the changing worlds is asked again."""
        for pair in self._laboratory.pairs:
            zone = ZONES[(ZONES.index(pair.place.zone) + 1) % len(ZONES)]
            self._laboratory.store.move_node(pair.place.node, zone)
            self._laboratory.barrier.wait_zone(pair.theirs, zone)
        self._laboratory.follow()
        problems = []
        for pair, followers in zip(self._laboratory.pairs, self.followers, strict=True):
            worlds = [self._laboratory.worlds[i] for i in self._changing]
            asked = self._laboratory.questions(pair, worlds)
            problems += judge(self._laboratory, pair, asked, may_forget=False)
            problems += followers.follow(())
        return problems


def counted(followers: Sequence[Followers]) -> int:
    """How many flows and clients stay."""
    return sum(len(one) for one in followers)
