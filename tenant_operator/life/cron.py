# SPDX-License-Identifier: Apache-2.0
"""Cron expressions of five fields in a time zone: when they were due last, and when they are next. Pure.

The language is that of Kubernetes' CronJobs (robfig/cron): `*`, numbers, ranges, lists, steps, names of
months and weekdays, 7 or 0 for Sunday. If both the day and the weekday are restricted, either is enough.

Clocks that change:

- A local time that does not exist, as clocks were set forward over it, is due when the gap ends. CronJobs
  skip it; a tenant would sleep for a day more. Two such times keep their order (`Occurrence.lag_s`).
- A local time that exists twice is due the first time.
"""

import bisect
import calendar
import datetime as dt
from collections.abc import Iterator, Sequence

import msgspec

MAX_EXPRESSION_CHARS = 255
# From one 29 February to the next: 2096 to 2104.
_MAX_MONTHS = 12 * 9
_LEAP_YEAR = 2000

_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_WEEKDAYS = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}


class CronError(ValueError):
    """What is wrong with an expression, for people."""


class _Field(msgspec.Struct, frozen=True):
    name: str
    first: int
    last: int
    names: dict[str, int] = {}


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("weekday", 0, 7, _WEEKDAYS),
)


class Occurrence(msgspec.Struct, frozen=True, order=True):
    """When an expression is due. `lag_s` is below zero for a local time that was skipped: how long before the
    end of the gap it would have been."""

    at_s: float
    lag_s: float = 0.0


class CronSchedule(msgspec.Struct, frozen=True):
    """The numbers that each field allows, in order; weekdays from Sunday, which is 0."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    is_every_day: bool
    is_every_weekday: bool

    def last(self, now_s: float, zone: dt.tzinfo) -> Occurrence | None:
        """The last time at which it was due, up to now."""
        local = _local(now_s, zone)
        for day in self._days_before(local.date() + dt.timedelta(days=1)):
            found = bisect.bisect_right(_Times(self, day, zone), now_s, key=_instant)
            if found:
                return _Times(self, day, zone)[found - 1]
        return None

    def next(self, now_s: float, zone: dt.tzinfo) -> Occurrence | None:
        """The first time after now at which it is due."""
        local = _local(now_s, zone)
        for day in self._days_after(local.date() - dt.timedelta(days=1)):
            times = _Times(self, day, zone)
            found = bisect.bisect_right(times, now_s, key=_instant)
            if found < len(times):
                return times[found]
        return None

    def _days_after(self, first: dt.date) -> Iterator[dt.date]:
        for number in range(_MAX_MONTHS):
            for day in self.days_of(*_month(first, number)):
                if day >= first:
                    yield day

    def _days_before(self, last: dt.date) -> Iterator[dt.date]:
        for number in range(_MAX_MONTHS):
            for day in reversed(self.days_of(*_month(last, -number))):
                if day <= last:
                    yield day

    def days_of(self, year: int, month: int) -> list[dt.date]:
        """The days of a month on which it is due."""
        if month not in self.months or not dt.MINYEAR < year < dt.MAXYEAR:
            return []
        weekday_of_first, count = calendar.monthrange(year, month)
        return [
            dt.date(year, month, day)
            for day in range(1, count + 1)
            # monthrange counts from Monday.
            if self._is_due_on(day, (weekday_of_first + day) % 7)
        ]

    def _is_due_on(self, day: int, weekday: int) -> bool:
        is_day, is_weekday = day in self.days, weekday in self.weekdays
        if self.is_every_day or self.is_every_weekday:
            return is_day and is_weekday
        return is_day or is_weekday


def parse(expression: str) -> CronSchedule:
    """Raises CronError for one that is invalid, or that is never due."""
    if len(expression) > MAX_EXPRESSION_CHARS:
        raise CronError(f"has more than {MAX_EXPRESSION_CHARS} characters")
    texts = expression.split()
    if len(texts) != len(_FIELDS):
        raise CronError(f"has {len(texts)} fields, not 5: minute, hour, day, month and weekday")
    minutes, hours, days, months, weekdays = (
        _numbers(field, text) for field, text in zip(_FIELDS, texts, strict=True)
    )
    found = CronSchedule(
        tuple(sorted(minutes)),
        tuple(sorted(hours)),
        tuple(sorted(days)),
        tuple(sorted(months)),
        tuple(sorted({number % 7 for number in weekdays})),
        is_every_day=texts[2] in ("*", "?"),
        is_every_weekday=texts[4] in ("*", "?"),
    )
    if not any(found.days_of(_LEAP_YEAR, month) for month in found.months):
        raise CronError("is never due: none of its months has one of its days")
    return found


def _numbers(field: _Field, text: str) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        found.update(_range(field, part))
    return found


def _range(field: _Field, part: str) -> range:
    """`*`, `4`, `4-8`, `*/2`, `4-8/2`, or `4/2`, which is `4-LAST/2`."""
    span, has_step, step_text = part.partition("/")
    step = _number(field, step_text, "step", names={}) if has_step else 1
    if step < 1:
        raise CronError(f"{field.name} {part!r}: the step is less than 1")
    if span in ("*", "?"):
        # 7 is Sunday for a second time.
        return range(field.first, min(field.last, 6 if field.name == "weekday" else field.last) + 1, step)
    first_text, has_last, last_text = span.partition("-")
    first = _number(field, first_text, "value", field.names)
    last = field.last if has_step else first
    if has_last:
        last = _number(field, last_text, "value", field.names)
    if not field.first <= first <= last <= field.last:
        raise CronError(f"{field.name} {part!r} is not between {field.first} and {field.last}, in order")
    return range(first, last + 1, step)


def _number(field: _Field, text: str, what: str, names: dict[str, int]) -> int:
    known = names.get(text.lower())
    if known is not None:
        return known
    if not (text.isascii() and text.isdigit() and len(text) <= 2):
        raise CronError(f"{field.name}: {text[:20]!r} is no {what}")
    return int(text)


def _month(day: dt.date, after: int) -> tuple[int, int]:
    year, month = divmod(day.year * 12 + day.month - 1 + after, 12)
    return year, month + 1


def _local(now_s: float, zone: dt.tzinfo) -> dt.datetime:
    return dt.datetime.fromtimestamp(now_s, dt.UTC).astimezone(zone)


class _Times(Sequence[Occurrence]):
    """All times of a day at which an expression is due, in order. None is computed before it is read: an
    expression may have 1 440 of them."""

    def __init__(self, schedule: CronSchedule, day: dt.date, zone: dt.tzinfo) -> None:
        self._schedule, self._day, self._zone = schedule, day, zone

    def __len__(self) -> int:
        return len(self._schedule.hours) * len(self._schedule.minutes)

    def __getitem__(self, index: int) -> Occurrence:  # type: ignore[override] # no slices of it
        hour, minute = divmod(index, len(self._schedule.minutes))
        time = dt.time(self._schedule.hours[hour], self._schedule.minutes[minute])
        return _occurrence(dt.datetime.combine(self._day, time), self._zone)


def _instant(occurrence: Occurrence) -> float:
    return occurrence.at_s


def _occurrence(local: dt.datetime, zone: dt.tzinfo) -> Occurrence:
    """When a local time is, or when the gap ends in which it would be."""
    # `fold=0` takes the offset before a change of the clock, and `fold=1` the one behind it.
    before, after = (_timestamp(local, zone, fold) for fold in (0, 1))
    if before <= after:
        return Occurrence(before)
    end_s = _change_between(after, before, zone)
    return Occurrence(end_s, after - end_s)


def _timestamp(local: dt.datetime, zone: dt.tzinfo, fold: int) -> float:
    return local.replace(tzinfo=zone, fold=fold).timestamp()


def _change_between(first_s: float, last_s: float, zone: dt.tzinfo) -> float:
    """The first second at which the clock has the offset that it has at `last_s`, later than at `first_s`."""
    low, high = int(first_s), int(last_s)
    offset = _local(last_s, zone).utcoffset()
    while high - low > 1:
        middle = (low + high) // 2
        if _local(middle, zone).utcoffset() == offset:
            high = middle
        else:
            low = middle
    return float(high)
