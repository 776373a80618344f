# SPDX-License-Identifier: Apache-2.0
"""The order of tables: at each moment a frontend is translated or rejected."""

from collections.abc import Callable

import pytest

from devkit.fake_iptables import FakeIptables
from ruleset.delta import document_difference
from ruleset.document import Document
from ruleset.installed.rules import expected
from ruleset.model import Family
from ruleset.names import Backend
from ruleset.render.iptables import render
from ruleset.restore.script import delta_restore, full_restore
from tests.unit.ruleset.models import services


def _text(before: Document, after: Document) -> str:
    return delta_restore(document_difference(before, after), before, expected(before))


def _tables(text: str) -> list[str]:
    return [line[1:] for line in text.splitlines() if line.startswith("*")]


SOME: dict[str, list[int]] = {}
MORE, OTHERS = {"refused": [1]}, {"refused": [2]}


@pytest.mark.parametrize(
    ("before", "after", "tables"),
    [
        (SOME, MORE, ["filter", "nat"]),
        (MORE, SOME, ["nat", "filter"]),
        (MORE, OTHERS, ["filter", "nat", "filter"]),
        (SOME, {"moved": [1]}, ["nat"]),
    ],
    ids=["rejected first", "translated first", "both rejected meanwhile", "one table"],
)
def test_rejecting_rules_come_first_and_go_last(
    before: dict[str, list[int]], after: dict[str, list[int]], tables: list[str]
) -> None:
    old, new = (render(services(4, 1, **how)) for how in (before, after))  # type: ignore[arg-type]  # parametrized
    assert _tables(_text(old, new)) == tables


@pytest.mark.parametrize("before", [SOME, MORE, OTHERS])
@pytest.mark.parametrize("after", [SOME, MORE, OTHERS])
def test_frontend_has_a_rule_after_each_commit(
    before: dict[str, list[int]], after: dict[str, list[int]]
) -> None:
    old, new = (render(services(4, 1, **how)) for how in (before, after))  # type: ignore[arg-type]  # parametrized
    guest = _Watched(lambda k: _at_tail_of(k, 4))
    guest.restore(full_restore(old, expected(Document(Family.IPV4, Backend.IPTABLES, {}))))
    guest.is_watched = True
    guest.restore(_text(old, new))


def _at_tail_of(guest: FakeIptables, count: int) -> bool:
    """Whether each Service has a rule of its own in nat or filter."""
    rules = [*guest.tables["nat"]["VCN-SERVICES"], *guest.tables["filter"]["VCN-SERVICES"]]
    return all(any(rule.startswith(f"-d 172.30.0.{i + 1}/32 ") for rule in rules) for i in range(count))


class _Watched(FakeIptables):
    """Checks a condition after each COMMIT."""

    def __init__(self, holds: Callable[[FakeIptables], bool]) -> None:
        super().__init__()
        self._holds = holds
        self.is_watched = False

    def restore(self, text: str, *, noflush: bool = True) -> None:
        for part in text.split("COMMIT\n")[:-1]:
            super().restore(f"{part}COMMIT\n", noflush=noflush)
            assert not self.is_watched or self._holds(self)
