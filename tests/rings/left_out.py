# SPDX-License-Identifier: Apache-2.0
"""Leaves tests out that cannot run here: one skipped test with the reason, not a hundred."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest


def items_below(folder: Path, items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests of one ring."""
    return [item for item in items if item.path.is_relative_to(folder)]


def keep_first(config: pytest.Config, items: list[pytest.Item], left_out: Sequence[pytest.Item]) -> None:
    """Deselect all of `left_out` but its first test."""
    first, *others = left_out
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item is first or item not in left_out]


def leave_out(
    config: pytest.Config, items: list[pytest.Item], left_out: Sequence[pytest.Item], reason: str, option: str
) -> None:
    """Skip the first of `left_out` for this reason and deselect the others.

    Raises `pytest.UsageError` where `option` requires them.
    """
    if config.getoption(option, False):
        raise pytest.UsageError(reason)
    keep_first(config, items, left_out)
    left_out[0].add_marker(pytest.mark.skip(reason=reason))
