# SPDX-License-Identifier: Apache-2.0
"""The skips that CI accepts: what its machine cannot do, and why that is so. All others fail the run.

An entry is removed when the machine can; a new one is a decision, and its reason stands beside it.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AllowedSkip:
    """`test` and `reason` are regular expressions, of the node id and of the skip's reason."""

    test: str
    reason: str
    why: str


ALLOWED: tuple[AllowedSkip, ...] = ()


def is_allowed(test: str, reason: str, allowed: tuple[AllowedSkip, ...] = ALLOWED) -> bool:
    return any(re.search(one.test, test) and re.search(one.reason, reason) for one in allowed)
