# SPDX-License-Identifier: Apache-2.0
import pytest

from daemonkit.config.ip_addresses import is_address, is_loopback


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1", (True, True)),
        ("127.8.0.1", (True, True)),
        ("::1", (True, True)),
        ("localhost", (False, True)),
        ("10.0.0.1", (True, False)),
        ("::", (True, False)),
        ("node-1", (False, False)),
        ("010.0.0.1", (False, False)),
        ("", (False, False)),
    ],
)
def test_addresses_and_those_of_this_host(text: str, expected: tuple[bool, bool]) -> None:
    assert (is_address(text), is_loopback(text)) == expected
