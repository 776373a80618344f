# SPDX-License-Identifier: Apache-2.0
"""What a daemon takes where nothing else is given."""

from syncer.surroundings import Surroundings


def test_a_short_step_takes_no_system_call() -> None:
    """Each step had two, as the processor clock stood in the place of the wall clock too."""
    assert Surroundings().scheduler().clock_ns.__name__ == "monotonic_ns"
