# SPDX-License-Identifier: Apache-2.0
"""Waiting for the kernel's random pool."""

import errno
import os

import pytest

from guest_agent.connection import wait_for_random_pool


class FakeKernel:
    """A fake getrandom(2); `calls` has the flags of its calls."""

    def __init__(self, error: OSError | None = None) -> None:
        self.error = error
        self.calls: list[int] = []

    def getrandom(self, size: int, flags: int) -> bytes:
        self.calls.append(flags)
        if flags == os.GRND_NONBLOCK and self.error is not None:
            raise self.error
        return bytes(size)


def test_a_ready_random_pool_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = FakeKernel()
    wait_for_random_pool(kernel.getrandom)
    assert kernel.calls == [os.GRND_NONBLOCK]
    assert capsys.readouterr().err == ""


def test_waiting_for_the_random_pool_is_logged_first(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = FakeKernel(BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"))
    logged_before: list[str] = []

    def getrandom(size: int, flags: int) -> bytes:
        if flags == 0:
            logged_before.append(capsys.readouterr().err)
        return kernel.getrandom(size, flags)

    wait_for_random_pool(getrandom)
    assert kernel.calls == [os.GRND_NONBLOCK, 0]
    (before,) = logged_before
    assert "waiting for the guest kernel's random pool" in before
    assert "virtio-rng" in before
    assert "is ready" in capsys.readouterr().err


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM])
def test_without_getrandom_there_is_no_wait(code: int) -> None:
    kernel = FakeKernel(OSError(code, os.strerror(code)))
    wait_for_random_pool(kernel.getrandom)
    assert kernel.calls == [os.GRND_NONBLOCK]
