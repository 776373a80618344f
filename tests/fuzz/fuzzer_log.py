# SPDX-License-Identifier: Apache-2.0
"""Reads the log of libFuzzer: what one run has done. Text in, figures out."""

import re
from typing import NamedTuple

# Behind the replay of all given inputs, and at the end. The number counts executions since the begin.
_INITED = re.compile(r"^#(\d+)\s+INITED\s", re.MULTILINE)
_DONE = re.compile(r"^#(\d+)\s+DONE\s+cov: (\d+) ft: (\d+)", re.MULTILINE)


class FuzzFigures(NamedTuple):
    """`executions` are of new inputs, without the replay of the corpus and the seeds."""

    executions: int = 0
    edges: int = 0
    features: int = 0


def figures(text: str) -> FuzzFigures:
    """Zeros where the run did not reach its end."""
    begun, done = _INITED.search(text), [*_DONE.finditer(text)]
    if begun is None or not done:
        return FuzzFigures()
    total, edges, features = map(int, done[-1].groups())
    return FuzzFigures(total - int(begun[1]), edges, features)
