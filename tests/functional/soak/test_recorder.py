# SPDX-License-Identifier: Apache-2.0
"""What a soak makes of a request: an outcome, and a violation for another tenant's byte."""

from collections.abc import Callable

import pytest

from tests.soak.answers import OK
from tests.soak.recorder import LeakError, Recorder
from vcnode_demo.tenant_client import RefusedError

pytestmark = pytest.mark.functional


def raises(error: Exception) -> Callable[[], str]:
    def call() -> str:
        raise error

    return call


@pytest.mark.parametrize(
    ("call", "outcome"),
    [
        (lambda: OK, "ok"),
        (lambda: "502 kubelet-unreachable", "502 kubelet-unreachable"),
        (raises(RefusedError("unknown ca")), "cut: unknown ca"),
        (raises(ConnectionResetError(104, "Connection reset by peer")), "cut: Connection reset by peer"),
        (raises(StopIteration()), "broken: StopIteration()"),
    ],
)
def test_each_request_has_an_outcome(call: Callable[[], str], outcome: str) -> None:
    recorder = Recorder()
    assert recorder.ask("log", "acme", call) is (outcome == OK)
    assert dict(recorder.counts) == {("log", outcome): 1}
    assert [each.outcome for each in recorder.failures()] == ([] if outcome == OK else [outcome])
    assert list(recorder.violations()) == []


def test_another_tenants_byte_is_a_violation_at_once() -> None:
    recorder = Recorder()
    assert not recorder.ask("log", "acme", raises(LeakError("it has ['4f1c'] of another tenant's")))
    assert [each.text for each in recorder.violations()] == [
        "log of acme: it has ['4f1c'] of another tenant's"
    ]
