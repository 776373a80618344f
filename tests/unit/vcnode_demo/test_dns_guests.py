# SPDX-License-Identifier: Apache-2.0
"""What a container of the demo is started by. tests/lab starts some."""

import pytest

from vcnode.terminal import ToolError
from vcnode_demo import dns_guests


@pytest.fixture
def installed_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns_guests, "has_program", lambda name: name == "mount")


@pytest.mark.usefixtures("installed_mount")
def test_no_requirement_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns_guests, "run", lambda _argv: "")
    assert dns_guests.missing_requirement() == ""


@pytest.mark.usefixtures("installed_mount")
def test_a_denied_mount_is_a_missing_requirement(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_argv: object) -> str:
        raise ToolError("mount: permission denied")

    monkeypatch.setattr(dns_guests, "run", refuses)
    assert (
        dns_guests.missing_requirement()
        == "needs what this kernel or container does not allow: mount: permission denied"
    )


def test_a_missing_mount_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns_guests, "has_program", lambda _name: False)
    assert dns_guests.missing_requirement() == "needs mount"
