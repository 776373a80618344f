# SPDX-License-Identifier: Apache-2.0
"""How long to wait before something that failed is tried again."""

# Beyond it any sensible wait has long met its ceiling, and a float would overflow some day.
_MOST_DOUBLINGS = 16


def backoff_s(failures: int, *, first_s: float, longest_s: float) -> float:
    """The wait after `failures` in a row, at least one: `first_s`, doubling, up to `longest_s`."""
    return min(longest_s, first_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))


def spread_s(ceiling_s: float, jitter: float) -> float:
    """A wait in the upper half of what `ceiling_s` allows, so that those who failed together do not
    come back together. `jitter` is drawn from 0 to 1."""
    return ceiling_s * (0.5 + 0.5 * jitter)
