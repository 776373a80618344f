# SPDX-License-Identifier: Apache-2.0
"""The longest steps of vc-syncer with one object: `python -m tests.bench.steps [KIND...]`.

For each kind that goes down each list and map grows alone, until the object is refused. Then its steps are
timed: values are counted, it is parsed, loaded and planned, where the super cluster has nothing, the same and
something else, and the request is made. Milliseconds of the thread's processor time, best of three.
"""

import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from daemonkit.kube import deep_json
from daemonkit.kube.object_limits import MAX_OBJECT_BYTES, limits_of
from daemonkit.kube.watch import EventDecoder, Put
from syncer.caches.cached_object import (
    MAX_PLANNED_VALUES,
    CachedObject,
    parse_super,
    parse_super_pod,
    parser_of,
)
from syncer.core.objects import Object
from syncer.core.pair import Pair
from syncer.core.plan import Create, Patch, Side
from syncer.core.requests import request_of
from syncer.kinds.port import KindSync
from tests.unit.syncer.kinds import plan_world as world

# Smaller objects have no long steps.
_LEAST_BYTES = 24 << 10
_ROWS = 5


class StepTime(NamedTuple):
    """One step with an object whose `place` has so many entries."""

    ms: float
    what: str
    place: str
    entries: int
    size_bytes: int


def main(kinds: list[str]) -> None:
    sys.stdout.write(f"{'kind':24} {'ms':>6}  step\n")
    for sync in world.SYNCS:
        name = sync.kind.kind
        if world.is_from_above(sync) or (kinds and name not in kinds):
            continue
        for each in sorted(_steps(sync), reverse=True)[:_ROWS]:
            size = f"{each.entries} entries, {each.size_bytes >> 10} KB"
            sys.stdout.write(f"{name:24} {each.ms:6.1f}  {each.what}: {each.place} of {size}\n")
            sys.stdout.flush()


def _steps(sync: KindSync) -> Iterator[StepTime]:
    """Of each list and map the longest step, with whole entries and with empty ones."""
    parser = parser_of(sync.kind.kind, MAX_PLANNED_VALUES)
    decoder: EventDecoder[CachedObject] = EventDecoder(parser, limits=limits_of(sync.kind.resource))
    for place in world.schema(sync).places():
        for is_whole in (True, False):
            grown = _largest(sync, place, decoder, is_whole=is_whole)
            if grown is not None and len(grown[1]) >= _LEAST_BYTES:
                entries, raw = grown
                ms, what = max(_timed(sync, raw))
                yield StepTime(ms, what, place, entries, len(raw))


def _timed(sync: KindSync, raw: bytes) -> Iterator[tuple[float, str]]:
    kind = sync.kind.kind
    parser, view, key = parser_of(kind, MAX_PLANNED_VALUES), world.SizedView({}), world.key_of(sync)
    yield _best(lambda: deep_json.has_too_many_values(raw, MAX_PLANNED_VALUES)), "count"
    yield _best(lambda: parser.parse(raw)), "parse"
    cached = parser.parse(raw)
    yield _best(cached.load), "load"
    tenant = cached.load()
    yield _best(lambda: sync.plan(key, Pair(tenant, None), view)), "plan, nothing below"
    actions = sync.plan(key, Pair(tenant, None), view).actions
    for body in (each.body for each in actions if isinstance(each, Create) and each.side is Side.SUPER):
        yield _best(lambda: [request_of(each) for each in actions if isinstance(each, Create)]), "request"
        body["metadata"] |= {"uid": "s-1", "resourceVersion": "7"}
        text = json.dumps(body)
        other = text.replace("10.", "11.").replace("example.com/key", "example.com/other")
        for same, what in ((text, "plan, the same below"), (other, "plan, another below")):
            parse = parse_super_pod if kind == "Pod" else parse_super
            found = parse(same.encode()).load()
            yield _best(lambda found=found: sync.plan(key, Pair(tenant, found), view)), what  # type: ignore[misc]
            patches = [
                each for each in sync.plan(key, Pair(tenant, found), view).actions if isinstance(each, Patch)
            ]
            yield _best(lambda patches=patches: [request_of(each) for each in patches]), "request"  # type: ignore[misc]


def _best(call: Callable[[], object]) -> float:
    found = []
    for _ in range(3):
        gc.collect()
        begun_ns = time.thread_time_ns()
        call()
        found.append(time.thread_time_ns() - begun_ns)
    return min(found) / 1e6


def _largest(
    sync: KindSync, place: str, decoder: EventDecoder[CachedObject], *, is_whole: bool
) -> tuple[int, bytes] | None:
    """The most entries with which the object is cached, and its JSON; None for a text."""
    base: Object = json.loads(json.dumps(world.schema(sync).object({place: 2})))
    holder, name = _holder(base, place)
    first = holder.get(name)
    if not isinstance(first, dict | list) or not first:
        return None
    item = json.dumps(list(first.values())[-1] if isinstance(first, dict) else first[-1])

    def body(count: int) -> bytes:
        whole = (_numbered(item, number) for number in range(count)) if is_whole else [_void(item)] * count
        if isinstance(first, dict):
            domain = "example.com/key" if is_whole else "k"
            holder[name] = {f"{domain}-{number}": each for number, each in enumerate(whole)}
        else:
            holder[name] = list(whole)
        return json.dumps(base).encode()

    def fits(count: int) -> bool:
        raw = body(count)
        return len(raw) <= MAX_OBJECT_BYTES and isinstance(decoder.item(raw), Put)

    low, high = 1, 2
    if not fits(low):
        return None
    while fits(high):
        low, high = high, high * 2
    while high - low > max(1, low // 50):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low, body(low)


def _holder(value: Any, place: str) -> tuple[Object, str]:
    """The object that has the list or map of a place in its first entries, and its name there."""
    *above, name = place.split(".")
    for part in above:
        value = value[part.removesuffix("[]")]
        if part.endswith("[]"):
            value = value[0] if isinstance(value, list) else next(iter(value.values()))
    if name.endswith("[]"):
        return {}, ""  # texts of a list
    return value, name


def _numbered(item: str, number: int) -> Any:
    """An entry as no other: with an address, a pod and a text of its own."""
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    found = json.loads(item.replace("10.0.0.1", address).replace("pod-1", f"pod-{number}"))
    return f"{found}-{number}" if isinstance(found, str) and found != address else found


def _void(item: str) -> Any:
    match msgspec.json.decode(item):
        case dict():
            return {}
        case str():
            return ""
        case found:
            return found


if __name__ == "__main__":
    main(sys.argv[1:])
