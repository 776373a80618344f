# SPDX-License-Identifier: Apache-2.0
from dnsconfig.delivery.withdrawals import FORGET_S, Withdrawals


def test_a_submitted_pod_is_withdrawn_then_forgotten() -> None:
    pods = Withdrawals()
    pods.record_submitted({"a"})
    assert pods.evaluate({"a"}, (), (), (), 0.0) == (set(), set())
    assert pods.times() == []
    assert pods.evaluate((), (), (), (), 1.0) == (set(), set())
    assert pods.times() == [1.0 + FORGET_S, 1.0 + 2 * FORGET_S]
    assert pods.evaluate((), (), (), (), 1.0 + FORGET_S) == ({"a"}, set())
    assert pods.evaluate((), (), (), {"a"}, 2.0 + FORGET_S) == (set(), {"a"})
    assert pods.evaluate((), (), (), (), 9 * FORGET_S) == (set(), set())


def test_a_pod_that_returns_starts_anew() -> None:
    pods = Withdrawals()
    pods.evaluate((), {"a"}, (), (), 0.0)
    pods.evaluate({"a"}, {"a"}, (), (), FORGET_S - 1)
    assert pods.evaluate((), {"a"}, (), (), FORGET_S) == (set(), set())
    assert pods.evaluate((), {"a"}, (), (), 2 * FORGET_S) == ({"a"}, set())


def test_a_withdrawal_without_acknowledgement_ends() -> None:
    pods = Withdrawals()
    pods.evaluate((), {"a"}, (), (), 0.0)
    assert pods.evaluate((), {"a"}, (), (), 2 * FORGET_S) == (set(), {"a"})


def test_a_pod_that_was_never_submitted_is_only_forgotten() -> None:
    pods = Withdrawals()
    pods.evaluate((), (), {"a"}, (), 0.0)
    assert pods.evaluate((), (), {"a"}, (), FORGET_S) == (set(), {"a"})
