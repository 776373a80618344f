# SPDX-License-Identifier: Apache-2.0
"""When a tenant sleeps, what it says, and what is done at its wake."""

import datetime as dt

import pytest

from tenancy import keys
from tenant_operator.life import requests, sleep
from tenant_operator.life.requests import Requests
from tenant_operator.life.sleep import SleepDecision
from tenant_operator.model.objects import Ref
from tenant_operator.model.virtual_cluster import (
    Meta,
    SleepSchedule,
    SleepSpec,
    SleepStatus,
    VirtualCluster,
    VirtualClusterSpec,
    VirtualClusterStatus,
)

# Follows its schedules without a delay.
PUNCTUAL = "u-138"
OFFICE = SleepSchedule("0 20 * * 1-5", "0 7 * * 1-5", "Europe/Berlin")


def seconds(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()


def tenant(
    *schedules: SleepSchedule,
    created: str = "2026-01-01T00:00:00Z",
    status: SleepStatus | None = None,
) -> VirtualCluster:
    return VirtualCluster(
        Meta(name="acme", namespace="tenants", uid=PUNCTUAL, creation_timestamp=created),
        VirtualClusterSpec(sleep=SleepSpec(list(schedules))),
        VirtualClusterStatus(sleep=status),
    )


def decide(virtual_cluster: VirtualCluster, now: str, **requested: str) -> SleepDecision:
    asked = Requests(
        sleep_at_s=seconds(requested["sleep"]) if "sleep" in requested else None,
        wake_at_s=seconds(requested["wake"]) if "wake" in requested else None,
    )
    return sleep.decide(virtual_cluster, asked, seconds(now))


def test_a_tenant_without_requests_is_awake() -> None:
    assert decide(tenant(), "2026-11-30T08:00Z") == SleepDecision(
        False, "Awake", "no request or schedule has put it to sleep"
    )


def test_a_sleeping_tenant_says_since_when_why_and_what_it_keeps() -> None:
    volumes = [Ref("PersistentVolumeClaim", "tenants-7aad2b-acme", f"data-etcd-{n}") for n in range(10)]
    asked = Requests(sleep_at_s=seconds("2026-11-30T07:00Z"))
    found = sleep.decide(tenant(OFFICE), asked, seconds("2026-11-30T08:00Z"), volumes[:1])
    assert found == SleepDecision(
        True,
        "Asleep",
        "VirtualCluster tenants/acme has slept since 2026-11-30T07:00:00Z by request. What wakes it: "
        "the schedule at 2026-12-01T06:00:00Z, or `kubectl vc wake acme`. "
        "It keeps PersistentVolumeClaim tenants-7aad2b-acme/data-etcd-0",
        "2026-11-30T07:00:00Z",
        "request",
        seconds("2026-12-01T06:00Z"),
    )
    assert sleep.decide(tenant(), asked, seconds("2026-11-30T08:00Z"), volumes).message.endswith("and 2 more")


@pytest.mark.parametrize(
    ("asked", "is_asleep"),
    [
        ({"sleep": "2026-11-30T07:00Z"}, True),
        ({"wake": "2026-11-30T07:00Z"}, False),
        ({"sleep": "2026-11-30T07:00Z", "wake": "2026-11-30T06:00Z"}, True),
        ({"sleep": "2026-11-30T06:00Z", "wake": "2026-11-30T07:00Z"}, False),
        ({"sleep": "2026-11-30T07:00Z", "wake": "2026-11-30T07:00Z"}, False),
    ],
)
def test_the_later_request_wins_and_of_two_the_wake(asked: dict[str, str], is_asleep: bool) -> None:
    assert decide(tenant(), "2026-11-30T08:00Z", **asked).is_asleep is is_asleep


@pytest.mark.parametrize(
    ("now", "is_asleep", "next_"),
    [
        ("2026-11-30T06:59+01:00", True, "2026-11-30T07:00+01:00"),
        ("2026-11-30T07:00+01:00", False, "2026-11-30T20:00+01:00"),
        ("2026-11-30T19:59+01:00", False, "2026-11-30T20:00+01:00"),
        ("2026-11-30T20:00+01:00", True, "2026-12-01T07:00+01:00"),
        # Over the weekend.
        ("2026-11-28T12:00+01:00", True, "2026-11-30T07:00+01:00"),
        # The same time of day, before and behind the change of clocks.
        ("2026-10-23T20:00+02:00", True, "2026-10-26T07:00+01:00"),
        ("2026-03-27T20:00+01:00", True, "2026-03-30T07:00+02:00"),
    ],
)
def test_office_hours(now: str, is_asleep: bool, next_: str) -> None:
    found = decide(tenant(OFFICE), now)
    assert (found.is_asleep, found.next_change_at_s) == (is_asleep, seconds(next_))


def test_a_wake_holds_until_the_next_sleep_is_due() -> None:
    asked = {"wake": "2026-11-28T10:00+01:00"}
    assert not decide(tenant(OFFICE), "2026-11-30T19:59+01:00", **asked).is_asleep
    assert decide(tenant(OFFICE), "2026-11-30T20:00+01:00", **asked).is_asleep


def test_schedule_without_a_wake_sleeps_until_woken() -> None:
    schedule = SleepSchedule("0 20 * * *")
    found = decide(tenant(schedule), "2026-11-30T21:00Z")
    assert (found.is_asleep, found.next_change_at_s) == (True, None)
    assert not decide(tenant(schedule), "2026-11-30T22:00Z", wake="2026-11-30T21:30Z").is_asleep


def test_one_schedule_may_sleep_and_another_wake() -> None:
    """A sleep at night each day, and on Fridays earlier."""
    both = (SleepSchedule("0 22 * * *", "0 6 * * *"), SleepSchedule("0 16 * * fri"))
    assert decide(tenant(*both), "2026-11-27T17:00Z").is_asleep
    assert not decide(tenant(*both), "2026-11-26T17:00Z").is_asleep
    assert decide(tenant(*both), "2026-11-26T17:00Z").next_change_at_s == seconds("2026-11-26T22:00Z")


@pytest.mark.parametrize(
    ("schedule", "is_asleep"),
    [
        # In the hour that clocks skip, both are due at its end: what is later by the expression counts.
        (SleepSchedule("15 2 * * *", "45 2 * * *", "Europe/Berlin"), False),
        (SleepSchedule("45 2 * * *", "15 2 * * *", "Europe/Berlin"), True),
        (SleepSchedule("30 2 * * *", "0 3 * * *", "Europe/Berlin"), False),
    ],
)
def test_the_skipped_hour_keeps_the_order(schedule: SleepSchedule, is_asleep: bool) -> None:
    assert decide(tenant(schedule), "2026-03-29T03:00+02:00").is_asleep is is_asleep


def test_a_schedule_of_before_the_creation_does_not_count() -> None:
    on_sunday = tenant(OFFICE, created="2026-11-29T12:00:00Z")
    assert not decide(on_sunday, "2026-11-29T12:01Z").is_asleep
    assert decide(on_sunday, "2026-11-30T19:00Z").is_asleep


def test_the_status_keeps_since_when_it_sleeps() -> None:
    """Whatever else asks for sleep meanwhile."""
    status = SleepStatus("2026-11-27T19:00:03Z", "request")
    found = decide(tenant(OFFICE, status=status), "2026-11-28T12:00Z", sleep="2026-11-28T11:00Z")
    assert (found.since, found.why) == ("2026-11-27T19:00:03Z", "request")


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        (
            SleepSchedule("0 25 * * *", "0 7 * * *"),
            "spec.sleep.schedules[0].sleep: '0 25 * * *' hour '25' is not between 0 and 23, in order; "
            "write it as 0 20 * * 1-5",
        ),
        (
            SleepSchedule("0 20 * * *", "0 0 31 2 *"),
            "spec.sleep.schedules[0].wake: '0 0 31 2 *' is never due: none of its months has one of its "
            "days; write it as 0 20 * * 1-5",
        ),
        (
            SleepSchedule("0 20 * * *", "", "Mars/Olympus"),
            "spec.sleep.schedules[0].timeZone: 'Mars/Olympus' is not in the IANA database of the operator's "
            "image; use a name such as Europe/Berlin",
        ),
        (
            SleepSchedule("0 20 * * *", "", "../../etc/passwd"),
            "spec.sleep.schedules[0].timeZone: '../../etc/passwd' is not in the IANA database of the "
            "operator's image; use a name such as Europe/Berlin",
        ),
        (
            SleepSchedule("0 20 * * *", "", "Europe"),
            "spec.sleep.schedules[0].timeZone: 'Europe' is not in the IANA database of the operator's image; "
            "use a name such as Europe/Berlin",
        ),
    ],
)
def test_a_wrong_schedule_leaves_the_tenant_awake(schedule: SleepSchedule, problem: str) -> None:
    found = decide(tenant(schedule), "2026-11-30T23:00Z")
    assert (found.is_asleep, [each.text for each in found.problems]) == (False, [problem])


def test_a_wrong_schedule_leaves_the_others() -> None:
    found = decide(tenant(SleepSchedule("x", "y"), OFFICE), "2026-11-30T23:00Z")
    assert (found.is_asleep, len(found.problems)) == (True, 1)


def test_schedules_are_bounded() -> None:
    found = decide(tenant(*[OFFICE] * 1000), "2026-11-30T12:00Z")
    assert [each.text for each in found.problems] == [
        "spec.sleep.schedules: has 1000 schedules, and the first 16 count; remove the others"
    ]


def test_a_request_by_an_annotation_decides() -> None:
    now_s = seconds("2026-11-30T08:00Z")
    asked = requests.read({keys.SLEEP_REQUESTED_AT: "2026-11-30T07:00:00Z"}, now_s)
    assert sleep.decide(tenant(), asked, now_s).is_asleep


def test_one_schedule_is_spread_over_a_minute() -> None:
    """A thousand tenants that wake at eight do so second by second, and none does so twice."""
    schedule = SleepSchedule("0 20 * * *", "0 8 * * *", "UTC")
    woken: list[int] = []
    for number in range(1000):
        meta = Meta(
            name="acme", namespace="tenants", uid=f"uid-{number}", creation_timestamp="2026-01-01T00:00:00Z"
        )
        each = VirtualCluster(meta, VirtualClusterSpec(sleep=SleepSpec([schedule])))
        night = decide(each, "2026-11-30T07:59:59Z")
        assert night.next_change_at_s is not None
        late = night.next_change_at_s - seconds("2026-11-30T08:00:00Z")
        assert late == sleep.delay_s(meta.uid)
        at = dt.datetime.fromtimestamp(night.next_change_at_s - 1, dt.UTC).isoformat()
        assert decide(each, at).is_asleep
        at = dt.datetime.fromtimestamp(night.next_change_at_s, dt.UTC).isoformat()
        assert not decide(each, at).is_asleep
        woken.append(int(late))
    assert (min(woken), max(woken)) == (0, 59)
    assert max(woken.count(second) for second in range(60)) < 40


def test_wake_wins_for_the_late_too() -> None:
    """Of two at the same time the one that wakes: also meanwhile."""
    both = (SleepSchedule("0 8 * * *", "", "UTC"), SleepSchedule("0 20 * * *", "0 8 * * *", "UTC"))
    for number in range(100):
        meta = Meta(name="acme", uid=f"uid-{number}", creation_timestamp="2026-01-01T00:00:00Z")
        each = VirtualCluster(meta, VirtualClusterSpec(sleep=SleepSpec(list(both))))
        found = {second: decide(each, f"2026-11-30T08:00:{second:02}Z").is_asleep for second in range(60)}
        late = sleep.delay_s(meta.uid)
        assert found == {second: second < late for second in range(60)}
