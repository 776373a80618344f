# SPDX-License-Identifier: Apache-2.0
import pytest

from daemonkit.fairness.lease import Lease


def test_a_lease_is_released_once() -> None:
    given_back: list[str] = []
    with Lease(lambda: given_back.append("place")) as lease:
        lease.release()
    lease.release()
    assert given_back == ["place"]


def test_a_release_that_fails_is_one() -> None:
    def fail() -> None:
        raise RuntimeError("no such place")

    lease = Lease(fail)
    with pytest.raises(RuntimeError):
        lease.release()
    assert not lease.is_held
    lease.release()
