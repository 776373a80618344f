# SPDX-License-Identifier: Apache-2.0
"""Which events each runtime supports."""

import pytest

from kata_bridge.nri.events import GATE, SANDBOXES, SINCE_0_10, Event, mask, supports_since_0_10


def test_mask_of_events() -> None:
    assert mask(SANDBOXES) == 0x7
    assert mask(SANDBOXES | GATE) == 0x200F
    assert mask(SINCE_0_10) == 0x3800
    assert mask(event for event in Event if event is not Event.UNKNOWN) == 0x3FFF
    with pytest.raises(ValueError, match="all"):
        mask([])


@pytest.mark.parametrize(
    ("name", "version", "nri", "is_supported"),
    [
        ("containerd", "2.4.2", "v0.12.3", True),
        ("anything", "", "v0.12.0", True),
        ("containerd", "2.2.0", "", True),
        ("containerd", "v2.2.0-rc.1", "", True),
        ("containerd", "v2.10.1", "", True),
        ("containerd", "2.1.4", "", False),
        ("containerd", "1.7.27", "", False),
        ("containerd", "unknown", "", False),
        ("cri-o", "1.34.0", "", True),
        ("CRI-O", "1.33.9", "", False),
        ("anything", "9.9", "", False),
        ("", "", "", False),
    ],
)
def test_which_runtimes_support_newer_events(name: str, version: str, nri: str, is_supported: bool) -> None:
    assert supports_since_0_10(name, version, nri) is is_supported
