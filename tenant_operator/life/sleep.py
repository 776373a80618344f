# SPDX-License-Identifier: Apache-2.0
"""Whether a tenant sleeps: its control plane has no pod, and keeps its volumes, Secrets and addresses. Pure.

A person's requests and the schedules are events: the latest one that is due decides, and of two at the same
time the one that wakes. What cannot be read asks for nothing, so that a tenant stays awake by mistake, never
asleep. A schedule of before the VirtualCluster was created does not count: who makes a tenant on a Sunday
wants it now. Tenants with one schedule follow it within a minute, each at its own second.
"""

import datetime as dt
import hashlib
import zoneinfo
from collections.abc import Iterator, Sequence

import msgspec

from tenant_operator.life import cron
from tenant_operator.life.requests import Requests, text_of, time_of
from tenant_operator.model.objects import Ref
from tenant_operator.model.problem import SpecProblem
from tenant_operator.model.virtual_cluster import SleepSchedule, VirtualCluster

# As the schema of the VirtualCluster.
MAX_SCHEDULES = 16
_MAX_SHOWN_VOLUMES = 8
_MAX_ZONE_CHARS = 63
# Of those with one schedule, the last one is so late.
SPREAD_S = 60


class SleepDecision(msgspec.Struct, frozen=True):
    """What the condition Sleeping has. `since` is as Kubernetes writes times, empty while it is awake.

    `next_change_at_s`: when the next schedule changes it, in seconds since 1970.
    """

    is_asleep: bool
    reason: str
    message: str
    since: str = ""
    why: str = ""
    next_change_at_s: float | None = None
    problems: tuple[SpecProblem, ...] = ()


class SleepEvent(msgspec.Struct, frozen=True, order=True):
    """One thing that puts the tenant to sleep, or wakes it; later ones are greater."""

    at: cron.Occurrence
    is_wake: bool
    why: str


class SleepTimes(msgspec.Struct, frozen=True):
    zone: dt.tzinfo
    sleep: cron.CronSchedule
    wake: cron.CronSchedule | None
    text: SleepSchedule

    def events(self, now_s: float) -> Iterator[SleepEvent]:
        """The last of each kind."""
        for expression, is_wake in ((self.sleep, False), (self.wake, True)):
            found = None if expression is None else expression.last(now_s, self.zone)
            if found is not None:
                yield SleepEvent(found, is_wake, self._why(is_wake=is_wake))

    def next_s(self, now_s: float, *, is_wake: bool) -> float | None:
        expression = self.wake if is_wake else self.sleep
        found = None if expression is None else expression.next(now_s, self.zone)
        return None if found is None else found.at_s

    def _why(self, *, is_wake: bool) -> str:
        return f"schedule {self.text.wake if is_wake else self.text.sleep!r} {self.text.time_zone}"


def decide(
    virtual_cluster: VirtualCluster, requests: Requests, now_s: float, volumes: Sequence[Ref] = ()
) -> SleepDecision:
    """Whether a control plane of ours sleeps now. `volumes` are the claims that it keeps, for the message."""
    spec = virtual_cluster.spec
    schedules, problems = _read(spec.sleep.schedules)
    created_s = time_of(virtual_cluster.metadata.creation_timestamp) or 0.0
    late_s = delay_s(virtual_cluster.metadata.uid)
    due = (event for each in schedules for event in each.events(now_s - late_s))
    events = [*_requested(requests), *(event for event in due if event.at.at_s >= created_s)]
    latest = max(events, default=None)
    is_asleep = latest is not None and not latest.is_wake
    times = (each.next_s(now_s - late_s, is_wake=is_asleep) for each in schedules)
    next_s = min((at_s + late_s for at_s in times if at_s is not None), default=None)
    if latest is None or not is_asleep:
        return SleepDecision(False, "Awake", _message_awake(latest, next_s), "", "", next_s, problems)
    status = virtual_cluster.status.sleep
    since = status.since if status is not None and status.since else text_of(latest.at.at_s)
    message = _asleep_message(virtual_cluster, since, latest.why, next_s, volumes)
    return SleepDecision(True, "Asleep", message, since, latest.why, next_s, problems)


def delay_s(uid: str) -> int:
    """How late the VirtualCluster of this UID follows its schedules, in whole seconds."""
    return int.from_bytes(hashlib.sha256(uid.encode()).digest()[:8]) % SPREAD_S


def _requested(requests: Requests) -> Iterator[SleepEvent]:
    if requests.sleep_at_s is not None:
        yield SleepEvent(cron.Occurrence(requests.sleep_at_s), False, "request")
    if requests.wake_at_s is not None:
        yield SleepEvent(cron.Occurrence(requests.wake_at_s), True, "request")


def _read(texts: Sequence[SleepSchedule]) -> tuple[list[SleepTimes], tuple[SpecProblem, ...]]:
    """The schedules that can be used, and the problems of the others."""
    schedules, problems = [], []
    for index, text in enumerate(texts[:MAX_SCHEDULES]):
        found = _read_one(f"spec.sleep.schedules[{index}]", text)
        if isinstance(found, SpecProblem):
            problems.append(found)
        else:
            schedules.append(found)
    if len(texts) > MAX_SCHEDULES:
        problems.append(
            SpecProblem(
                "spec.sleep.schedules",
                "ScheduleInvalid",
                f"has {len(texts)} schedules, and the first {MAX_SCHEDULES} count",
                "remove the others",
            )
        )
    return schedules, tuple(problems)


def _read_one(field: str, text: SleepSchedule) -> SleepTimes | SpecProblem:
    zone = _zone(text.time_zone)
    if zone is None:
        return SpecProblem(
            f"{field}.timeZone",
            "TimeZoneUnknown",
            f"{text.time_zone[:_MAX_ZONE_CHARS]!r} is not in the IANA database of the operator's image",
            "use a name such as Europe/Berlin",
        )
    found: dict[str, cron.CronSchedule] = {}
    for name, expression in (("sleep", text.sleep), ("wake", text.wake)):
        if name == "wake" and not expression:
            continue
        try:
            found[name] = cron.parse(expression)
        except cron.CronError as error:
            shown = expression[:_MAX_ZONE_CHARS]
            return SpecProblem(
                f"{field}.{name}", "ScheduleInvalid", f"{shown!r} {error}", "write it as 0 20 * * 1-5"
            )
    return SleepTimes(zone, found["sleep"], found.get("wake"), text)


def _zone(name: str) -> dt.tzinfo | None:
    if not name or len(name) > _MAX_ZONE_CHARS:
        return None
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _message_awake(latest: SleepEvent | None, next_s: float | None) -> str:
    by = f"woken by {latest.why}" if latest is not None else "no request or schedule has put it to sleep"
    return by if next_s is None else f"{by}; the schedule puts it to sleep at {text_of(next_s)}"


def _asleep_message(
    virtual_cluster: VirtualCluster, since: str, why: str, next_s: float | None, volumes: Sequence[Ref]
) -> str:
    meta = virtual_cluster.metadata
    wakes = "" if next_s is None else f"the schedule at {text_of(next_s)}, or "
    kept = ", ".join(map(str, volumes[:_MAX_SHOWN_VOLUMES])) or "no volume"
    more = f" and {len(volumes) - _MAX_SHOWN_VOLUMES} more" if len(volumes) > _MAX_SHOWN_VOLUMES else ""
    return (
        f"VirtualCluster {meta.namespace}/{meta.name} has slept since {since} by {why}. "
        f"What wakes it: {wakes}`kubectl vc wake {meta.name}`. It keeps {kept}{more}"
    )
