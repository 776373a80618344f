# SPDX-License-Identifier: Apache-2.0
"""Commands of documents: blocks of `sh` after lines `<!-- install: NAME -->`, or `operate`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# In the order in which a reader of the README, or of docs/operate.md, comes to them.
STEPS = ("authorities", "bundle", "cluster", "packages", "node", "start", "ask", "tenant", "network")
OPERATE_STEPS = ("renew", "register", "upgrade", "remove")
Steps = Mapping[str, str]
_BLOCK = re.compile(r"^<!-- (?:install|operate): ([a-z]+) -->\n```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class MissingStepError(Exception):
    """A document lacks a step, or has another one."""


def read(document: str, expected: Sequence[str]) -> Steps:
    """All blocks of a document of this repository, by name.

    Raises MissingStepError unless they are those that are expected, in this order.
    """
    found = _BLOCK.findall((ROOT / document).read_text(encoding="utf-8"))
    names = [name for name, _ in found]
    if names != list(expected):
        raise MissingStepError(f"{document} has {names}, expected {list(expected)}")
    return dict(found)
