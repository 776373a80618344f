# SPDX-License-Identifier: Apache-2.0
"""The bans of this ring hold: a forbidden call raises a BaseException for every caller."""

import asyncio
import os
import socket
import subprocess
import time
from collections.abc import Callable

import pytest

from daemonkit import logs
from daemonkit.files import watched


def _on_socket(method: str, address: tuple[str, int]) -> None:
    with socket.socket() as one:
        getattr(one, method)(address)


@pytest.mark.parametrize(
    "forbidden",
    [
        lambda: _on_socket("connect", ("127.0.0.1", 1)),
        lambda: _on_socket("bind", ("127.0.0.1", 0)),
        lambda: socket.create_connection(("127.0.0.1", 1)),
        lambda: socket.getaddrinfo("localhost", 1),
        lambda: subprocess.run(["true"], check=True),
        lambda: os.system("true"),  # noqa: S605 - it does not run
        lambda: os.execv("/bin/true", ["true"]),  # noqa: S606 - it does not run
        lambda: os.setuid(0),
        lambda: os.chown("/", 0, 0),
        lambda: time.sleep(0),
    ],
)
def test_a_forbidden_call_raises_a_base_exception(forbidden: Callable[[], object]) -> None:
    with pytest.raises(BaseException, match="in a unit test") as caught:
        forbidden()
    assert not isinstance(caught.value, Exception)


def test_the_code_under_test_may_not_read_the_clock() -> None:
    in_daemonkit = eval("lambda: time.monotonic()", {"time": time, "__name__": watched.__name__})  # noqa: S307
    with pytest.raises(BaseException, match=r"time.monotonic in daemonkit.files.watched in a unit test"):
        in_daemonkit()
    assert time.monotonic() > 0
    logs.get("x").debug("no stamp, no clock")


@pytest.mark.asyncio
async def test_an_hour_passes_at_once() -> None:
    started = time.perf_counter()
    await asyncio.sleep(3600)
    assert asyncio.get_running_loop().time() == 3600
    assert time.perf_counter() - started < 60
