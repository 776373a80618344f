# SPDX-License-Identifier: Apache-2.0
"""What a container of the demo is started by. tests/lab starts some."""

import pytest

from vcnode.terminal import ToolError
from vcnode_demo import dns_guests


@pytest.fixture
def has_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns_guests, "has_program", lambda name: name == "mount")


@pytest.mark.usefixtures("has_mount")
def test_with_everything_nothing_is_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns_guests, "run", lambda _argv: "")
    assert dns_guests.lacks() == ""


@pytest.mark.usefixtures("has_mount")
def test_without_the_right_to_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_argv: object) -> str:
        raise ToolError("mount: permission denied")

    monkeypatch.setattr(dns_guests, "run", refuses)
    assert (
        dns_guests.lacks() == "needs what this kernel or container does not allow: mount: permission denied"
    )


def test_without_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns_guests, "has_program", lambda _name: False)
    assert dns_guests.lacks() == "needs mount"
