# SPDX-License-Identifier: Apache-2.0
import pytest

from kata_bridge.channels.stock.hybrid_vsock import is_accepted


@pytest.mark.parametrize("line", [b"OK 1073741824\n", b"OK 0\n", b"OK 1024\r\n"])
def test_ok_line_is_accepted(line: bytes) -> None:
    assert is_accepted(line)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"OK\n",
        b"OK \n",
        b"ok 1\n",
        b"OK 1",
        b"OK 12345678901\n",
        b"NO 1\n",
        b"OK 1\n\n",
        b" OK 1\n",
    ],
)
def test_other_line_is_not_accepted(line: bytes) -> None:
    assert not is_accepted(line)
