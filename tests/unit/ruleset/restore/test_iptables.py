# SPDX-License-Identifier: Apache-2.0
"""The order of tables: no captured address is ever neither translated nor refused."""

from collections.abc import Callable

import pytest

from ruleset.delta import document_difference
from ruleset.document import Document
from ruleset.installed.rules import expected
from ruleset.model import Family
from ruleset.names import Backend
from ruleset.render.iptables import render
from ruleset.restore.script import delta_restore, full_restore
from tests.unit.ruleset.kernel import Kernel
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
    ids=["refused first", "translated first", "both refused meanwhile", "one table"],
)
def test_order_of_tables(
    before: dict[str, list[int]], after: dict[str, list[int]], tables: list[str]
) -> None:
    old, new = (render(services(4, 1, **how)) for how in (before, after))  # type: ignore[arg-type]  # parametrized
    assert _tables(_text(old, new)) == tables


@pytest.mark.parametrize("before", [SOME, MORE, OTHERS])
@pytest.mark.parametrize("after", [SOME, MORE, OTHERS])
def test_no_moment_without_an_answer(before: dict[str, list[int]], after: dict[str, list[int]]) -> None:
    old, new = (render(services(4, 1, **how)) for how in (before, after))  # type: ignore[arg-type]  # parametrized
    kernel = _Watched(lambda k: _answered(k, 4))
    kernel.restore(full_restore(old, expected(Document(Family.IPV4, Backend.IPTABLES, {}))))
    kernel.is_watched = True
    kernel.restore(_text(old, new))


def _answered(kernel: Kernel, count: int) -> bool:
    """Whether each of the Services is translated or refused by itself (not by the catch-all)."""
    rules = [*kernel.tables["nat"]["VCN-SERVICES"], *kernel.tables["filter"]["VCN-SERVICES"]]
    return all(any(rule.startswith(f"-d 172.30.0.{i + 1}/32 ") for rule in rules) for i in range(count))


class _Watched(Kernel):
    """Asks a question after each COMMIT."""

    def __init__(self, holds: Callable[[Kernel], bool]) -> None:
        super().__init__()
        self._holds = holds
        self.is_watched = False

    def restore(self, text: str, *, noflush: bool = True) -> None:
        for part in text.split("COMMIT\n")[:-1]:
            super().restore(f"{part}COMMIT\n", noflush=noflush)
            assert not self.is_watched or self._holds(self)
