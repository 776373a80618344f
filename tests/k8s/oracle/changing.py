# SPDX-License-Identifier: Apache-2.0
"""Changes namespaces while all sides follow, and asks about what was touched."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from tests.k8s.oracle.changes import ObjectChange, draw_change
from tests.k8s.oracle.draw import ZONES, DrawnNamespace, Json
from tests.k8s.oracle.following import Followers
from tests.k8s.oracle.judging import judge
from tests.k8s.oracle.laboratory import Laboratory, Pair
from tests.k8s.oracle.questions import Question, of_service
from tests.k8s.oracle.shapes import SHAPES
from tests.k8s.oracle.volley import AskedFlow

_BATCH = 20
# Changes meet each other where many of them are in one namespace.
_CHANGING_NAMESPACES = 40
_OTHERS = 60


class Changing:
    """A run of changes of some namespaces; `steps` or `shaped` are for the caller to take."""

    def __init__(self, laboratory: Laboratory, numbers: Sequence[int], what: str) -> None:
        """`numbers` are the namespaces', of which some change; `what` names the choices."""
        self._laboratory = laboratory
        self._choose = laboratory.chooser(what)
        self._changing = self._choose.sample(numbers, min(_CHANGING_NAMESPACES, len(numbers)))
        self._asked = [self._all_questions(pair) for pair in laboratory.pairs]
        self.followers: list[Followers] = []
        self.made = 0

    def steps(self, count: int) -> Iterator[list[str]]:
        """Make `count` changes, some at a time; after each time what is wrong, and what was wrong before.
        Once in the middle the nodes move to other zones."""
        yield from self._begin()
        middle = count // 2
        for number in range(0, count, _BATCH):
            if number <= middle < number + _BATCH:
                yield self._move_nodes()
            yield self._change(self._some_change() for _ in range(min(_BATCH, count - number)))

    def shaped(self) -> Iterator[list[str]]:
        """Take the steps of all shapes side by side; after each what is wrong."""
        yield from self._begin()
        numbers = self._laboratory.shaped
        for step in range(max(len(one.steps) for one in SHAPES)):
            now = [
                (number, one.steps[step])
                for number, one in zip(numbers, SHAPES, strict=True)
                if step < len(one.steps)
            ]
            yield self._change(self._shape(number, make) for number, make in now if make is not None)

    def _begin(self) -> Iterator[list[str]]:
        """Ask everything, and let flows and clients begin."""
        for pair, asked in zip(self._laboratory.pairs, self._asked, strict=True):
            yield judge(self._laboratory, pair, asked)
        self.followers = [
            Followers(self._laboratory, pair, asked)
            for pair, asked in zip(self._laboratory.pairs, self._asked, strict=True)
        ]

    def _change(self, wanted: Iterable[ObjectChange | None]) -> list[str]:
        before = dict(self._laboratory.store.services)
        changes = [change for change in wanted if change is not None]
        self.made += len(changes)
        self._laboratory.follow()
        touched = {(change.after.name, change.service) for change in changes}
        problems = []
        for pair, followers in zip(self._laboratory.pairs, self.followers, strict=True):
            asked = self._questions(pair, touched, before)
            problems += judge(self._laboratory, pair, asked, may_forget=False)
            problems += followers.follow(changes)
        if problems:
            said = "\n".join(problems)
            of_these = [one for one in changes if f"{one.after.name}/{one.service}" in said]
            problems.append("after " + "\n".join(one.whole() for one in of_these or changes))
        return problems

    def _some_change(self) -> ObjectChange | None:
        """Make one; None if the API server does not want it."""
        number = self._choose.choice(self._changing)
        change = draw_change(self._choose, self._laboratory.namespaces[number])
        return change if self._made(number, change) else None

    def _shape(self, number: int, make: Callable[[DrawnNamespace], ObjectChange]) -> ObjectChange:
        change = make(self._laboratory.namespaces[number])
        assert self._made(number, change), self._laboratory.store.refused[-1]
        return change

    def _made(self, number: int, change: ObjectChange) -> bool:
        """Whether the API server took it."""
        if not self._laboratory.store.apply(change):
            return False
        self._laboratory.namespaces[number] = change.after
        return True

    def _all_questions(self, pair: Pair) -> list[Question]:
        return self._laboratory.questions(pair, [self._laboratory.namespaces[i] for i in self._changing])

    def _questions(
        self, pair: Pair, touched: set[tuple[str, str]], before: dict[tuple[str, str], Json]
    ) -> list[Question]:
        """About Services as they were and as they are, and about some that were left alone."""
        found: dict[AskedFlow, Question] = {}
        for services in (self._laboratory.store.services, before):
            for key in sorted(touched & services.keys()):
                for one in of_service(services[key], pair.place):
                    found.setdefault(one.flow, one)
        # With choices of their own: how many questions there are is up to the API server's choice of
        # cluster IPs, and the changes of a seed are to be the same each time.
        choose = self._laboratory.chooser(f"others of {pair.place.node} after {self.made} changes")
        namespaces = choose.sample(
            self._laboratory.namespaces, min(_CHANGING_NAMESPACES, len(self._laboratory.namespaces))
        )
        others = self._laboratory.questions(pair, namespaces)
        for one in choose.sample(others, min(_OTHERS, len(others))):
            found.setdefault(one.flow, one)
        return list(found.values())

    def _move_nodes(self) -> list[str]:
        """Each node's zone becomes the next one; everything in the changing namespaces is asked again."""
        for pair in self._laboratory.pairs:
            zone = ZONES[(ZONES.index(pair.place.zone) + 1) % len(ZONES)]
            self._laboratory.store.move_node(pair.place.node, zone)
            self._laboratory.barrier.wait_zone(pair.theirs, zone)
        self._laboratory.follow()
        problems = []
        for pair, followers in zip(self._laboratory.pairs, self.followers, strict=True):
            problems += judge(self._laboratory, pair, self._all_questions(pair), may_forget=False)
            problems += followers.follow(())
        return problems


def counted(followers: Sequence[Followers]) -> int:
    """How many flows and clients stay."""
    return sum(len(one) for one in followers)
