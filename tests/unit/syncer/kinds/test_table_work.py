# SPDX-License-Identifier: Apache-2.0
"""The work of a plan grows with what is planned, for every kind, and no faster: no product of two lists.

Objects have every field of Kubernetes' schema, and a policy allows all that a policy can allow: so the plans
go through all that they do. What a plan looks at beside its object grows too.
"""

from collections.abc import Callable
from functools import cache

import pytest

from syncer.caches import weights
from syncer.core.pair import Pair
from syncer.kinds.port import KindSync
from syncer.policy.sync_policy import SyncPolicy
from tests.pump import Sizes, steps, superlinear
from tests.unit.syncer.kinds.plan_world import (
    CONTAINER_LISTS,
    OTHERS,
    SYNCS,
    SizedView,
    is_from_above,
    key_of,
    pair,
    schema,
    up,
)


@pytest.mark.parametrize("situation", ["created", "equal", "changed"])
@pytest.mark.parametrize("sync", SYNCS, ids=lambda sync: sync.kind.kind)
def test_the_work_of_a_plan_is_no_product_of_two_lists(sync: KindSync, situation: str) -> None:
    def measure(sizes: Sizes) -> int:
        objects, view = pair(sync, situation, sizes), SizedView(sizes)
        return steps(lambda: sync.plan(key_of(sync), objects, view))

    _assert_linear(sync, measure)


@pytest.mark.parametrize("sync", SYNCS, ids=lambda sync: sync.kind.kind)
def test_the_work_on_what_is_refused_is_no_product_of_two_lists(sync: KindSync) -> None:
    """With the policy that a tenant has by default."""

    def measure(sizes: Sizes) -> int:
        own, view = schema(sync).object(sizes), SizedView(sizes, policy=SyncPolicy())
        objects = Pair(None, up(sync, own)) if is_from_above(sync) else Pair(own, None)
        return steps(lambda: sync.plan(key_of(sync), objects, view))

    _assert_linear(sync, measure)


def _assert_linear(sync: KindSync, measure: Callable[[Sizes], int]) -> None:
    places = schema(sync).places()
    # All variables of a pod are bounded together, so many containers have few: apart neither hides the other.
    lists = [each for each in CONTAINER_LISTS if each in places]
    apart = [each for each in places if each not in lists]
    assert superlinear(measure, [*apart, *OTHERS]) == []
    assert superlinear(measure, places if lists else ()) == []


@pytest.mark.parametrize("situation", ["created", "changed"])
@pytest.mark.parametrize("containers", CONTAINER_LISTS)
def test_the_work_of_containers_is_no_product_with_what_is_there(containers: str, situation: str) -> None:
    """In pairs. Of keys each container's own sources are looked at, which the view bounds for all of them."""
    sync = next(each for each in SYNCS if each.kind.kind == "Pod")

    @cache
    def measured(sizes: frozenset[tuple[str, int]]) -> int:
        objects, view = pair(sync, situation, dict(sizes)), SizedView(dict(sizes))
        return steps(lambda: sync.plan(key_of(sync), objects, view))

    def measure(sizes: Sizes) -> int:
        return measured(frozenset(sizes.items()))

    below, others = f"{containers}[].envFrom", [each for each in OTHERS if each != "view:keys"]
    found = [superlinear(measure, [place, other]) for place in (containers, below) for other in others]
    assert [each for each in found if each] == []


# Of a plan, for each value that its object weighs. Each of these takes 0.01 us, and the largest object weighs
# 20 000: that is 20 ms.
_MOST_STEPS = 100


@pytest.mark.parametrize("sync", SYNCS, ids=lambda sync: sync.kind.kind)
def test_the_work_of_a_plan_is_within_the_weight_of_its_object(sync: KindSync) -> None:
    """So an object of the largest weight is planned within a step that others can wait for.

    Each list and map grows alone; the work of all of them together is their sum.
    """
    if is_from_above(sync):
        return  # of what comes up a plan reads metadata

    def measured(sizes: Sizes) -> tuple[int, int]:
        objects, view = pair(sync, "changed", sizes), SizedView({})
        assert objects.tenant is not None
        return weights.weight(kind, objects.tenant), steps(lambda: sync.plan(key_of(sync), objects, view))

    shape, kind = schema(sync), sync.kind.kind
    before, little = measured({})
    heavy: dict[str, float] = {}
    for place in shape.places():
        if weights.weight(kind, shape.object({place: 40})) <= before:
            continue  # a text
        after, much = measured({place: 40})
        if (much - little) > _MOST_STEPS * (after - before):
            heavy[place] = round((much - little) / (after - before), 1)
    assert heavy == {}
