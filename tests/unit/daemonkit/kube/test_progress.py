# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.kube.progress import (
    BACKOFF_MAX_S,
    RETRY_AFTER_MAX_S,
    START,
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
    after,
    backoff_s,
)
from daemonkit.kube.resources import Status, StatusCause, StatusDetails

LIST, WATCH = Action.LIST, Action.WATCH
FIRST_S, SECOND_S = 0.25, 0.5  # The back-off after one and after two failures, without jitter.


def refused(code: int, retry_after_s: float = 0.0, *, is_useful: bool = False) -> Refused:
    return Refused(Status(code=code), retry_after_s, is_useful)


TOO_LARGE = Refused(Status(504, details=StatusDetails(causes=[StatusCause("ResourceVersionTooLarge")])), 1.0)


@pytest.mark.parametrize(
    ("action", "failures", "outcome", "expected"),
    [
        # A complete list is followed by a watch at once; failures are not forgiven by a list alone.
        (LIST, 0, Listed(), Progress(Step(WATCH), 0)),
        (LIST, 3, Listed(), Progress(Step(WATCH), 3)),
        # A watch that was of use, or lasted, is taken up where it stopped.
        (WATCH, 3, Ended(0.1, is_useful=True), Progress(Step(WATCH), 0)),
        (WATCH, 3, Ended(300.0, is_useful=False), Progress(Step(WATCH), 0)),
        (WATCH, 0, Ended(0.1, is_useful=False), Progress(Step(WATCH, FIRST_S), 1)),
        (WATCH, 1, Ended(0.1, is_useful=False), Progress(Step(WATCH, SECOND_S), 2)),
        # Half open: reconnect, at the same version.
        (WATCH, 0, Stalled(is_useful=False), Progress(Step(WATCH, FIRST_S), 1)),
        (WATCH, 5, Stalled(is_useful=True), Progress(Step(WATCH, FIRST_S), 1)),
        # Gone: list at once, but not again and again.
        (WATCH, 0, refused(410), Progress(Step(LIST), 1)),
        (WATCH, 1, refused(410), Progress(Step(LIST, SECOND_S), 2)),
        (WATCH, 4, refused(410, is_useful=True), Progress(Step(LIST), 1)),
        # Gone while listing: the page token expired; ask for everything at once.
        (LIST, 0, refused(410), Progress(Step(LIST, is_paged=False), 1)),
        (LIST, 1, refused(410), Progress(Step(LIST, SECOND_S, is_paged=False), 2)),
        # What is no event, and what is from the past: list. Only what went back asks past the cache.
        (WATCH, 0, Garbage("?"), Progress(Step(LIST, FIRST_S), 1)),
        (LIST, 0, Garbage("?"), Progress(Step(LIST, FIRST_S), 1)),
        (LIST, 0, Regressed("9", "8"), Progress(Step(LIST, FIRST_S, is_fresh=True), 1)),
        (WATCH, 0, Regressed("9", "8"), Progress(Step(LIST, FIRST_S, is_fresh=True), 1)),
        (LIST, 0, TOO_LARGE, Progress(Step(LIST, 1.0, is_fresh=True), 1)),
        (WATCH, 0, TOO_LARGE, Progress(Step(LIST, 1.0, is_fresh=True), 1)),
        # Refusals that pass: the same again, later.
        (WATCH, 0, refused(401), Progress(Step(WATCH, FIRST_S), 1)),
        (LIST, 0, refused(401), Progress(Step(LIST, FIRST_S), 1)),
        (WATCH, 1, refused(403), Progress(Step(WATCH, SECOND_S), 2)),
        (LIST, 0, refused(403), Progress(Step(LIST, FIRST_S), 1)),
        (WATCH, 0, refused(429), Progress(Step(WATCH, FIRST_S), 1)),
        (WATCH, 0, refused(429, 7.0), Progress(Step(WATCH, 7.0), 1)),
        (LIST, 0, refused(429, 1e9), Progress(Step(LIST, RETRY_AFTER_MAX_S), 1)),
        (WATCH, 0, refused(500), Progress(Step(WATCH, FIRST_S), 1)),
        (LIST, 0, refused(503, 2.0), Progress(Step(LIST, 2.0), 1)),
        (WATCH, 0, refused(302), Progress(Step(WATCH, FIRST_S), 1)),
        # Refusals of the request itself: a watch goes back to a list.
        (WATCH, 0, refused(400), Progress(Step(LIST, FIRST_S), 1)),
        (WATCH, 0, refused(404), Progress(Step(LIST, FIRST_S), 1)),
        (LIST, 0, refused(404), Progress(Step(LIST, FIRST_S), 1)),
        # No answer.
        (LIST, 0, Unreachable("connect"), Progress(Step(LIST, FIRST_S), 1)),
        (WATCH, 1, Unreachable("connect"), Progress(Step(WATCH, SECOND_S), 2)),
    ],
)
def test_what_comes_next(action: Action, failures: int, outcome: Outcome, expected: Progress) -> None:
    assert after(Progress(Step(action), failures), outcome, jitter=0.0) == expected


def test_an_unpaged_list_stays_so_until_it_works() -> None:
    progress = Progress(Step(LIST, is_paged=False), 1)
    failed = after(progress, refused(500), 0.0)
    assert not failed.step.is_paged
    assert after(after(failed, Listed(), 0.0), refused(410), 0.0).step.is_paged


def test_the_first_list_is_a_fresh_one_and_stays_so() -> None:
    assert Step(LIST, is_fresh=True) == START
    assert after(Progress(), Unreachable("connect"), 0.0).step.is_fresh
    assert after(Progress(), refused(410), 0.0).step == Step(LIST, is_paged=False, is_fresh=True)


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_the_back_off_is_spread_and_bounded(failures: int, jitter: float) -> None:
    wait_s = backoff_s(failures, jitter)
    assert 0.25 <= wait_s <= BACKOFF_MAX_S
    assert backoff_s(failures, 0.0) <= wait_s <= backoff_s(failures, 0.0) * 2


_OUTCOMES = st.one_of(
    st.builds(Listed),
    st.builds(Ended, st.floats(0, 600), st.booleans()),
    st.builds(Stalled, st.booleans()),
    st.builds(Garbage, st.just("?")),
    st.builds(Regressed, st.just("9"), st.just("8")),
    st.builds(refused, st.integers(300, 599), st.floats(0, 1e12), is_useful=st.booleans()),
    st.just(TOO_LARGE),
    st.builds(Unreachable, st.just("?")),
)


@given(st.lists(_OUTCOMES, max_size=40))
def test_nothing_makes_a_tight_loop(outcomes: list[Outcome]) -> None:
    """Of any three steps in a row that brought nothing, at least one waited before."""
    progress = Progress()
    idle = 0
    for outcome in outcomes:
        was_useful = getattr(outcome, "is_useful", False) or getattr(outcome, "lasted_s", 0) >= 1
        progress = after(progress, outcome, 0.5)
        idle = 0 if was_useful or progress.step.delay_s > 0 else idle + 1
        assert idle < 3 or isinstance(outcome, Listed)
        assert 0 <= progress.step.delay_s <= RETRY_AFTER_MAX_S
