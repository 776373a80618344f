# SPDX-License-Identifier: Apache-2.0
"""Who waits for whom, and until when."""

from kubeproxy_ext.delivery.in_flight import BARRIER_S, InFlightBatches


def sent(*guests: str) -> InFlightBatches:
    made = InFlightBatches()
    made.sent(guests)
    return made


def test_guest_without_request_has_no_barrier() -> None:
    assert InFlightBatches().barrier_until("g1") is None
    assert sent("g1", "g2").barrier_until("g3") is None


def test_barrier_ends_with_the_last_result() -> None:
    made = sent("g1", "g2", "g3")
    made.answered("g1", 1.0)
    made.answered("g2", 1.02)
    assert made.barrier_until("g1") == made.barrier_until("g2") == 1.0 + BARRIER_S
    made.answered("g3", 1.03)
    assert [made.barrier_until(each) for each in ("g1", "g2", "g3")] == [None, None, None]


def test_single_guest_has_no_barrier() -> None:
    made = sent("g1")
    made.answered("g1", 1.0)
    assert made.barrier_until("g1") is None


def test_removed_guest_ends_the_barrier() -> None:
    made = sent("g1", "g2")
    made.answered("g1", 1.0)
    made.gone("g2")
    assert made.barrier_until("g1") is None
    made.gone("g2")


def test_slow_guest_delays_its_batch_only_once() -> None:
    made = sent("g1", "g2", "slow")
    made.answered("g1", 1.0)
    made.answered("g2", 1.0)
    made.sent(["g1", "g2"])
    made.answered("g1", 2.0)
    assert made.barrier_until("g1") == 2.0 + BARRIER_S
    made.answered("g2", 2.01)
    assert made.barrier_until("g1") is None
    made.answered("slow", 9.0)
    made.answered("slow", 10.0)
    assert made.barrier_until("slow") is None


def test_disconnect_ends_all_barriers() -> None:
    made = sent("g1", "g2")
    made.answered("g1", 1.0)
    made.clear()
    assert made.barrier_until("g1") is None
