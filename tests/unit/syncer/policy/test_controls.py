# SPDX-License-Identifier: Apache-2.0
"""Each field of a SyncPolicy says what it governs, and why its default is what it is."""

from syncer.policy.controls import CONTROLS
from syncer.policy.document import SECTIONS


def test_each_field_of_a_policy_has_a_reason() -> None:
    every = [f"{section}.{name}" for section, (_, _, parsers) in SECTIONS.items() for name in parsers]
    assert list(CONTROLS) == every
    for path, control in CONTROLS.items():
        assert control.governs, path
        assert control.reason, path
        assert "|" not in control.governs + control.reason, path
