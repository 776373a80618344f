# SPDX-License-Identifier: Apache-2.0
from collections import Counter

from syncer.run.attachments import look_behind_s


def test_a_thousand_tenants_are_not_looked_at_in_one_second() -> None:
    found = Counter(look_behind_s(f"tenant-{number}") for number in range(1_000))
    assert found.keys() == {0, 1, 2, 3, 4}
    assert max(found.values()) < 300
