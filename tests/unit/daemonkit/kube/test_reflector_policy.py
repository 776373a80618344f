# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.kube.reflector_policy import (
    BACKOFF_MAX_S,
    RETRY_AFTER_MAX_S,
    START,
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
    after,
    is_watch_useful,
    pause_s,
    retried,
)
from daemonkit.kube.resources import Status, StatusCause, StatusDetails

LIST, WATCH = Action.LIST, Action.WATCH
FIRST_S, SECOND_S = 0.25, 0.5  # The back-off after one and after two failures, without jitter.


def refused(code: int, retry_after_s: float = 0.0, *, is_useful: bool = False) -> Refused:
    return Refused(Status(code=code), retry_after_s, is_useful)


TOO_LARGE = Refused(Status(504, details=StatusDetails(causes=[StatusCause("ResourceVersionTooLarge")])), 1.0)


def listing(delay_s: float = 0.0, *, is_paged: bool = True, is_fresh: bool = False) -> Step:
    return Step(LIST, delay_s, is_paged, is_fresh)


def watching(delay_s: float = 0.0) -> Step:
    return Step(WATCH, delay_s)


@pytest.mark.parametrize(
    ("before", "outcome", "expected"),
    [
        # A complete list is followed by a watch at once. It proves that the server is there, not
        # that a watch will be of use.
        (Progress(listing()), Listed(), Progress(watching())),
        (Progress(listing(), 3, 2), Listed(), Progress(watching(), 0, 2)),
        # A watch that was of use is taken up where it stopped, and all is forgiven.
        (Progress(watching(), 3, 2, 1), Ended(0.1, is_useful=True), Progress(watching())),
        # So is one that brought nothing, but not for ever.
        (Progress(watching(), 3, 2), Ended(300.0, is_useful=False), Progress(watching(), 0, 2, 1)),
        (Progress(watching()), Ended(1.0, is_useful=False), Progress(watching(), 0, 0, 1)),
        (Progress(watching(), 0, 2, 2), Ended(300.0, is_useful=False), Progress(listing())),
        # One that ended at once is a failure.
        (Progress(watching()), Ended(0.1, is_useful=False), Progress(watching(FIRST_S), 1)),
        (Progress(watching(), 1), Ended(0.1, is_useful=False), Progress(watching(SECOND_S), 2)),
        # Half open: reconnect, at the same version.
        (Progress(watching(), 5), Stalled(is_useful=False), Progress(watching(FIRST_S), 0, 0, 1)),
        (Progress(watching(), 0, 0, 2), Stalled(is_useful=True), Progress(watching(FIRST_S), 0, 0, 1)),
        (Progress(watching(), 0, 0, 2), Stalled(is_useful=False), Progress(listing(FIRST_S))),
        # Gone: list at once, whatever failed before, but only once.
        (Progress(watching()), refused(410), Progress(listing(), 0, 1)),
        (Progress(watching(), 7), refused(410), Progress(listing(), 0, 1)),
        (Progress(watching(), 0, 1), refused(410), Progress(listing(SECOND_S), 0, 2)),
        (Progress(watching(), 0, 4), refused(410, is_useful=True), Progress(listing(), 0, 1)),
        # Gone while listing: the page token expired; list without pages.
        (Progress(listing(), 1, 1), refused(410), Progress(listing(is_paged=False), 1, 1)),
        (
            Progress(listing(is_paged=False)),
            refused(410),
            Progress(listing(FIRST_S, is_paged=False), 1),
        ),
        # After an invalid or stale event: list. Only a lower resourceVersion lists past the watch cache.
        (Progress(watching()), Garbage("?"), Progress(listing(FIRST_S), 0, 1)),
        (Progress(watching(), 0, 1), Garbage("?"), Progress(listing(SECOND_S), 0, 2)),
        (Progress(listing()), Garbage("?"), Progress(listing(FIRST_S), 1)),
        (Progress(listing()), Regressed("9", "8"), Progress(listing(FIRST_S, is_fresh=True), 1)),
        (Progress(watching()), Regressed("9", "8"), Progress(listing(FIRST_S, is_fresh=True), 0, 1)),
        (Progress(listing()), TOO_LARGE, Progress(listing(1.0, is_fresh=True), 1)),
        (Progress(watching()), TOO_LARGE, Progress(listing(1.0, is_fresh=True), 0, 1)),
        # Refusals that pass: the same again, later.
        (Progress(watching()), refused(401), Progress(watching(FIRST_S), 1)),
        (Progress(listing()), refused(401), Progress(listing(FIRST_S), 1)),
        (Progress(watching(), 1, 1), refused(403), Progress(watching(SECOND_S), 2, 1)),
        (Progress(listing()), refused(403), Progress(listing(FIRST_S), 1)),
        (Progress(watching()), refused(429), Progress(watching(FIRST_S), 1)),
        (Progress(watching()), refused(429, 7.0), Progress(watching(7.0), 1)),
        (Progress(listing()), refused(429, 1e9), Progress(listing(RETRY_AFTER_MAX_S), 1)),
        (Progress(watching()), refused(500), Progress(watching(FIRST_S), 1)),
        (Progress(listing()), refused(503, 2.0), Progress(listing(2.0), 1)),
        (Progress(watching()), refused(302), Progress(watching(FIRST_S), 1)),
        (Progress(watching(), 4), refused(500, is_useful=True), Progress(watching(FIRST_S), 1)),
        # Refusals of the request itself: relist.
        (Progress(watching()), refused(400), Progress(listing(FIRST_S), 0, 1)),
        (Progress(watching()), refused(404), Progress(listing(FIRST_S), 0, 1)),
        (Progress(listing()), refused(404), Progress(listing(FIRST_S), 1)),
        # Not installed: soon at first, as what a new cluster gets is installed within seconds.
        (Progress(), Absent(), Progress(listing(FIRST_S, is_fresh=True), absences=1)),
        (Progress(absences=1), Absent(), Progress(listing(SECOND_S, is_fresh=True), absences=2)),
        (Progress(absences=9), Absent(), Progress(listing(15.0, is_fresh=True), absences=10)),
        (Progress(absences=9), refused(500), Progress(listing(FIRST_S, is_fresh=True), 1, absences=9)),
        (Progress(absences=9), Listed(), Progress(watching())),
        # No response.
        (Progress(listing()), Unreachable("connect"), Progress(listing(FIRST_S), 1)),
        (Progress(watching(), 1), Unreachable("connect"), Progress(watching(SECOND_S), 2)),
    ],
)
def test_each_outcome_has_its_next_step(before: Progress, outcome: Outcome, expected: Progress) -> None:
    assert after(before, outcome, jitter=0.0) == expected


@pytest.mark.parametrize(
    ("lasted_s", "has_events", "has_bookmarks", "expected"),
    [
        (0.0, True, False, True),
        (0.0, True, True, True),
        # A server that ends each watch behind a bookmark.
        (0.0, False, True, False),
        (0.99, False, True, False),
        (1.0, False, True, True),
        (70.0, False, True, True),
        (70.0, False, False, False),
    ],
)
def test_which_watches_are_of_use(
    lasted_s: float, has_events: bool, has_bookmarks: bool, expected: bool
) -> None:
    assert is_watch_useful(lasted_s, has_events=has_events, has_bookmarks=has_bookmarks) is expected


def test_a_list_stays_unpaged_until_it_succeeds() -> None:
    progress = Progress(listing(is_paged=False), 1)
    failed = after(progress, refused(500), 0.0)
    assert not failed.step.is_paged
    assert after(after(failed, Listed(), 0.0), refused(410), 0.0).step.is_paged


def test_a_list_that_does_not_come_whole_is_paged_again() -> None:
    """Its answer may be larger than is read, now and at each other try."""
    progress = Progress(listing(is_paged=False), 1)
    failed = after(progress, Unreachable("a response of more than 134217728 bytes"), 0.0)
    assert failed == Progress(listing(SECOND_S), 2)


def test_a_server_that_is_back_is_asked_at_once() -> None:
    assert retried(Progress(listing(30.0, is_fresh=True), 9)) == Progress(listing(is_fresh=True))
    assert retried(Progress(watching(15.0), 4, 2, 1, 3)) == Progress(watching())


def test_the_first_list_is_fresh_until_it_succeeds() -> None:
    assert listing(is_fresh=True) == START
    assert after(Progress(), Unreachable("connect"), 0.0).step.is_fresh
    assert after(Progress(), Garbage("?"), 0.0).step.is_fresh
    assert after(Progress(), refused(410), 0.0).step == listing(is_paged=False, is_fresh=True)


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_the_back_off_is_spread_and_bounded(failures: int, jitter: float) -> None:
    wait_s = pause_s(failures, jitter)
    assert 0.25 <= wait_s <= BACKOFF_MAX_S
    assert pause_s(failures, 0.0) <= wait_s <= pause_s(failures, 0.0) * 2


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
def test_no_outcomes_make_a_tight_loop(outcomes: list[Outcome]) -> None:
    """Of any few steps in a row that brought nothing, at least one waited before."""
    progress = Progress()
    idle = 0
    for outcome in outcomes:
        if isinstance(outcome, Listed) and progress.step.action is Action.WATCH:
            continue  # no watch ends so
        was_useful = getattr(outcome, "is_useful", False) or getattr(outcome, "lasted_s", 0) >= 1
        progress = after(progress, outcome, 0.5)
        idle = 0 if was_useful or progress.step.delay_s > 0 else idle + 1
        # At most: gone, its list, gone again while listing, the full list, and the next watch.
        assert idle <= 5
        assert 0 <= progress.step.delay_s <= RETRY_AFTER_MAX_S
