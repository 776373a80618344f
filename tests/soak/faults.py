# SPDX-License-Identifier: Apache-2.0
"""A fault: how it begins and ends, what may fail meanwhile and how. The load tells when it is over."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.soak.answers import Allowance


class FaultError(Exception):
    """What a fault should do did not happen; the message says what."""


def nothing() -> None:
    """For a fault without a begin or an end."""


@dataclass(frozen=True, slots=True)
class SoakFault:
    """`begin` causes it, `end` lifts it; either may raise FaultError.

    `may` is what may fail from the begin until all load succeeds again. `must` is an outcome that at least
    one answer has to have (a regular expression). `ends_process`: a daemon begins anew.
    """

    name: str
    begin: Callable[[], None]
    end: Callable[[], None] = nothing
    may: tuple[Allowance, ...] = ()
    must: str = ""
    ends_process: bool = False
