# SPDX-License-Identifier: Apache-2.0
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from daemonkit.config.scrape_config import ScrapeConfig

WHOLE = ScrapeConfig("10.0.0.11", 9100, Path("/c"), Path("/k"), Path("/a"), ("prometheus",))


def test_there_is_no_listener_by_default() -> None:
    assert list(ScrapeConfig().problems()) == []
    assert ScrapeConfig().files is None


def test_a_whole_configuration_is_accepted() -> None:
    assert list(WHOLE.problems()) == []
    assert WHOLE.files == (Path("/c"), Path("/k"), Path("/a"))


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"address": "node-1"}, "address: expected an IP address, got 'node-1'"),
        ({"certificate_file": None}, "certificateFile: needed with address"),
        ({"key_file": None}, "keyFile: needed with address"),
        ({"client_ca_file": None}, "clientCAFile: needed with address"),
        ({"client_names": ()}, "clientNames: expected at least one name"),
    ],
)
def test_what_is_missing_is_named(changed: dict[str, Any], problem: str) -> None:
    assert list(dataclasses.replace(WHOLE, **changed).problems()) == [problem]
