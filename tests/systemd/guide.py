# SPDX-License-Identifier: Apache-2.0
"""The install guide's commands: the README's blocks of `sh` after lines `<!-- install: NAME -->`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# In the order in which a reader comes to them.
STEPS = ("authorities", "bundle", "cluster", "packages", "node", "start", "ask", "tenant", "network")
Steps = Mapping[str, str]
_BLOCK = re.compile(r"^<!-- install: ([a-z]+) -->\n```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class MissingStepError(Exception):
    """The README lacks a step, or has another one."""


def read(text: str) -> Steps:
    """All blocks by name. Raises `MissingStepError` unless they are `STEPS`, in this order."""
    found = _BLOCK.findall(text)
    if tuple(name for name, _ in found) != STEPS:
        raise MissingStepError(f"the README has {[name for name, _ in found]}, expected {list(STEPS)}")
    return dict(found)
