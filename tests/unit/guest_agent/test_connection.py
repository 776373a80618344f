# SPDX-License-Identifier: Apache-2.0
"""A guest whose kernel has no randomness yet."""

import errno
import os

import pytest

from guest_agent.connection import wait_for_random_pool


class FakeKernel:
    """Answers as getrandom(2) does; what asked is in `calls`."""

    def __init__(self, error: OSError | None = None) -> None:
        self.error = error
        self.calls: list[int] = []

    def getrandom(self, size: int, flags: int) -> bytes:
        self.calls.append(flags)
        if flags == os.GRND_NONBLOCK and self.error is not None:
            raise self.error
        return bytes(size)


def test_a_pool_that_is_ready_is_asked_once(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = FakeKernel()
    wait_for_random_pool(kernel.getrandom)
    assert kernel.calls == [os.GRND_NONBLOCK]
    assert capsys.readouterr().err == ""


def test_what_is_waited_for_is_logged_before(capsys: pytest.CaptureFixture[str]) -> None:
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
def test_a_kernel_without_the_call_is_not_waited_for(code: int) -> None:
    kernel = FakeKernel(OSError(code, os.strerror(code)))
    wait_for_random_pool(kernel.getrandom)
    assert kernel.calls == [os.GRND_NONBLOCK]
