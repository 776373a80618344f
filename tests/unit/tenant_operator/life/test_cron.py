# SPDX-License-Identifier: Apache-2.0
"""Cron expressions, compared with times written out, and with every minute of some days."""

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenant_operator.life import cron

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")
APIA = ZoneInfo("Pacific/Apia")
UTC = ZoneInfo("UTC")


def seconds(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()


def text(occurrence: cron.Occurrence | None, zone: ZoneInfo) -> str | None:
    return None if occurrence is None else dt.datetime.fromtimestamp(occurrence.at_s, zone).isoformat()


@pytest.mark.parametrize(
    ("expression", "last", "next_"),
    [
        # 2026-11-30 is a Monday.
        ("0 20 * * 1-5", "2026-11-27T20:00", "2026-11-30T20:00"),
        ("0 20 * * MON-FRI", "2026-11-27T20:00", "2026-11-30T20:00"),
        ("0 7 * * sun", "2026-11-29T07:00", "2026-12-06T07:00"),
        ("0 7 * * 0", "2026-11-29T07:00", "2026-12-06T07:00"),
        ("0 7 * * 7", "2026-11-29T07:00", "2026-12-06T07:00"),
        ("30 7 * * *", "2026-11-30T07:30", "2026-12-01T07:30"),
        ("0 8 * * *", "2026-11-30T08:00", "2026-12-01T08:00"),
        ("*/25 * * * *", "2026-11-30T08:00", "2026-11-30T08:25"),
        ("5/25 * * * *", "2026-11-30T07:55", "2026-11-30T08:05"),
        ("0 6-18/4 * * *", "2026-11-30T06:00", "2026-11-30T10:00"),
        ("0 0 1 JAN,jul ?", "2026-07-01T00:00", "2027-01-01T00:00"),
        ("0 0 29 2 *", "2024-02-29T00:00", "2028-02-29T00:00"),
        ("0 0 31 * *", "2026-10-31T00:00", "2026-12-31T00:00"),
        # Both restricted: either day. One of them `*`: both.
        ("0 0 13 * fri", "2026-11-27T00:00", "2026-12-04T00:00"),
        ("0 0 13-31 11 *", "2026-11-30T00:00", "2027-11-13T00:00"),
    ],
)
def test_what_was_due_last_and_is_next(expression: str, last: str, next_: str) -> None:
    now_s = seconds("2026-11-30T08:00+00:00")
    schedule = cron.parse(expression)
    assert text(schedule.last(now_s, UTC), UTC) == f"{last}:00+00:00"
    assert text(schedule.next(now_s, UTC), UTC) == f"{next_}:00+00:00"


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("", "has 0 fields, not 5: minute, hour, day, month and weekday"),
        ("* * * *", "has 4 fields, not 5: minute, hour, day, month and weekday"),
        ("* * * * * *", "has 6 fields, not 5: minute, hour, day, month and weekday"),
        ("@daily", "has 1 fields, not 5: minute, hour, day, month and weekday"),
        ("60 * * * *", "minute '60' is not between 0 and 59, in order"),
        ("0 24 * * *", "hour '24' is not between 0 and 23, in order"),
        ("0 0 0 * *", "day '0' is not between 1 and 31, in order"),
        ("0 0 * 13 *", "month '13' is not between 1 and 12, in order"),
        ("0 0 * * 8", "weekday '8' is not between 0 and 7, in order"),
        ("5-1 * * * *", "minute '5-1' is not between 0 and 59, in order"),
        ("*/0 * * * *", "minute '*/0': the step is less than 1"),
        ("*/x * * * *", "minute: 'x' is no step"),
        ("1,,2 * * * *", "minute: '' is no value"),
        ("-1 * * * *", "minute: '' is no value"),
        ("1-2-3 * * * *", "minute: '2-3' is no value"),
        ("٣ * * * *", "minute: '٣' is no value"),
        ("jan * * * *", "minute: 'jan' is no value"),
        ("0 0 30 2 *", "is never due: none of its months has one of its days"),
        ("0 0 31 4,6,9,11 *", "is never due: none of its months has one of its days"),
        ("1," * 200 + "1 * * * *", "has more than 255 characters"),
    ],
)
def test_what_cannot_be_used_is_refused(expression: str, problem: str) -> None:
    with pytest.raises(cron.CronError) as found:
        cron.parse(expression)
    assert str(found.value) == problem


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected", "lag_s"),
    [
        # Clocks are set forward from 02:00 to 03:00.
        ("30 2 * * *", BERLIN, "2026-03-29T00:00+01:00", "2026-03-29T03:00:00+02:00", -1800.0),
        ("15 2 * * *", BERLIN, "2026-03-29T00:00+01:00", "2026-03-29T03:00:00+02:00", -2700.0),
        ("0 2 * * *", BERLIN, "2026-03-29T00:00+01:00", "2026-03-29T03:00:00+02:00", -3600.0),
        ("0 3 * * *", BERLIN, "2026-03-29T00:00+01:00", "2026-03-29T03:00:00+02:00", 0.0),
        ("59 1 * * *", BERLIN, "2026-03-29T00:00+01:00", "2026-03-29T01:59:00+01:00", 0.0),
        ("30 2 8 3 *", NEW_YORK, "2026-03-01T00:00-05:00", "2026-03-08T03:00:00-04:00", -1800.0),
        # Clocks are set back from 03:00 to 02:00: the first 02:30 counts, and no second one.
        ("30 2 * * *", BERLIN, "2026-10-25T00:00+02:00", "2026-10-25T02:30:00+02:00", 0.0),
        ("30 2 * * *", BERLIN, "2026-10-25T02:30+02:00", "2026-10-26T02:30:00+01:00", 0.0),
        ("0 3 * * *", BERLIN, "2026-10-25T02:59+02:00", "2026-10-25T03:00:00+01:00", 0.0),
        # Samoa had no 30 December 2011.
        ("0 12 30 12 *", APIA, "2011-12-29T12:00-10:00", "2011-12-31T00:00:00+14:00", -43200.0),
    ],
)
def test_clocks_that_change(expression: str, zone: ZoneInfo, after: str, expected: str, lag_s: float) -> None:
    found = cron.parse(expression).next(seconds(after), zone)
    assert found is not None
    assert (text(found, zone), found.lag_s) == (expected, lag_s)
    assert cron.parse(expression).last(found.at_s, zone) == found


def test_the_longest_wait_ends() -> None:
    schedule = cron.parse("0 0 29 2 *")
    assert text(schedule.next(seconds("2096-03-01T00:00+00:00"), UTC), UTC) == "2104-02-29T00:00:00+00:00"
    assert text(schedule.last(seconds("2104-02-28T00:00+00:00"), UTC), UTC) == "2096-02-29T00:00:00+00:00"


def test_the_ends_of_the_calendar_have_none() -> None:
    schedule = cron.parse("0 0 * * *")
    assert schedule.next(seconds("9999-12-30T12:00+00:00"), UTC) is None
    assert schedule.last(seconds("0002-01-01T00:00+00:00"), UTC) == cron.Occurrence(
        seconds("0002-01-01T00:00+00:00")
    )


def _field(first: int, last: int) -> st.SearchStrategy[str]:
    number = st.integers(first, last).map(str)
    span = st.lists(st.integers(first, last), min_size=2, max_size=2).map(lambda x: f"{min(x)}-{max(x)}")
    part = st.one_of(st.just("*"), number, span, st.builds("{}/{}".format, span, st.integers(1, 9)))
    return st.lists(part, min_size=1, max_size=3).map(",".join)


@given(
    st.tuples(_field(0, 59), _field(0, 23)),
    st.sampled_from(["2026-03-29T00:00+01:00", "2026-10-25T00:00+02:00", "2026-06-01T05:17+02:00"]),
    st.integers(0, 1440),
)
def test_last_and_next_agree_with_every_minute(fields: tuple[str, str], start: str, minutes: int) -> None:
    """The local time of each minute of two days is looked at, as cron itself does."""
    schedule = cron.parse(" ".join(fields) + " * * *")
    now_s = seconds(start) + 60 * minutes
    is_due = [
        at_s
        for at_s in (now_s + 60 * number for number in range(-2880, 2881))
        if (local := dt.datetime.fromtimestamp(at_s, BERLIN)).fold == 0
        and local.minute in schedule.minutes
        and local.hour in schedule.hours
    ]
    last, next_ = schedule.last(now_s, BERLIN), schedule.next(now_s, BERLIN)
    assert last is not None and next_ is not None  # noqa: PT018
    # Times in the gap are due at its end, and no minute shows them.
    if last.lag_s == 0:
        assert last.at_s == max((at_s for at_s in is_due if at_s <= now_s), default=last.at_s)
    if next_.lag_s == 0:
        assert next_.at_s == min((at_s for at_s in is_due if at_s > now_s), default=next_.at_s)
