# SPDX-License-Identifier: Apache-2.0
import pytest

from daemonkit.kube.freshness import Failure
from daemonkit.kube.reflector_log import (
    BURST,
    INTERVAL_S,
    FailureLog,
    FirstFailure,
    OversizedObjectLog,
    failure_of,
)
from daemonkit.kube.reflector_policy import (
    Absent,
    Action,
    Ended,
    Garbage,
    Listed,
    Outcome,
    Progress,
    Refused,
    Regressed,
    Stalled,
    Step,
    Unreachable,
)
from daemonkit.kube.resources import PODS, Status
from daemonkit.kube.store import DecodeFailed
from daemonkit.remedies import Cause


@pytest.mark.parametrize(
    ("outcome", "failure"),
    [
        (Listed(), None),
        (Absent(), None),
        (Ended(1.0, is_useful=False), None),
        (Stalled(is_useful=False), None),
        (
            Refused(Status(403, "Forbidden", "no rights"), server="https://one"),
            Failure("403 Forbidden: no rights", 7.0, 403, Cause.FORBIDDEN, "https://one"),
        ),
        (Regressed("9", "3"), Failure("the server offers version 3, which is older than 9", 7.0)),
        (Garbage("no JSON"), Failure("no JSON", 7.0, cause=Cause.MALFORMED)),
        (
            Unreachable("no answer", Cause.TIMEOUT, "https://one"),
            Failure("no answer", 7.0, cause=Cause.TIMEOUT, server="https://one"),
        ),
    ],
)
def test_what_has_failed(outcome: Outcome, failure: Failure | None) -> None:
    assert failure_of(outcome, 7.0) == failure


def test_many_large_objects_do_not_fill_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    log = OversizedObjectLog(PODS, lambda: now)
    oversized = [
        DecodeFailed(("ns", f"pod-{number}"), "too large: x", is_too_large=True) for number in range(100)
    ]
    log.log([DecodeFailed(("ns", "odd"), "Expected `str`"), *oversized])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == BURST
    assert all("object=ns/pod-" in line and "reason=" in line for line in lines)
    now = INTERVAL_S
    log.log(oversized)
    assert len(capsys.readouterr().err.splitlines()) == 1


class _Followed:
    """What a reflector shows of its failures."""

    def __init__(self) -> None:
        self.log = FailureLog("pods")
        self.looks = 0

    @property
    def failure(self) -> Failure | None:
        self.looks += 1
        return self.log.current

    def fail(self, reason: str) -> None:
        self.log.failed(Step(Action.LIST), Failure(reason, 1.0), version="1", following=Progress())


def _message(failing: FirstFailure) -> str:
    return "" if failing.current is None else failing.current.message


def test_the_first_failure_is_known_at_once_and_ends() -> None:
    one, other = _Followed(), _Followed()
    failing = FirstFailure([one, other])
    assert _message(failing) == ""
    other.fail("refused")
    assert _message(failing) == "refused"
    one.fail("away")
    other.fail("refused")
    assert _message(failing) == "away"
    one.log.succeeded(Action.LIST)
    assert _message(failing) == "refused"
    other.log.succeeded(Action.WATCH)
    assert _message(failing) == ""


def test_no_reflector_is_looked_at_while_none_changes() -> None:
    """Each second those of all tenants were: 14 of each."""
    one = _Followed()
    failing = FirstFailure([one])
    for _ in range(100):
        assert failing.current is None
        one.log.succeeded(Action.WATCH)  # an event of one that has not failed
    assert one.looks == 1
    # Another process' part, or another tenant's, may be what has changed.
    _Followed().fail("refused")
    assert failing.current is None
    assert one.looks == 2
