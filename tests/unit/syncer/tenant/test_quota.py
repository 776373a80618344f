# SPDX-License-Identifier: Apache-2.0
"""The quota of a tenant between a write and the moment when the caches show it."""

import json
from collections import Counter
from dataclasses import replace
from typing import Any

from daemonkit.kube.resources import PODS
from syncer.caches.cached_object import CachedObject, parse
from syncer.caches.stored_totals import Totals
from syncer.core.objects import Object, SyncedKind
from syncer.core.plan import Create, Delete, Half, IssueTokens, Patch, Plan, Side, Wait
from syncer.policy.sync_policy import SyncPolicy
from syncer.tenant.quota import TenantQuota

ONE = 10**9
KIND = SyncedKind(PODS, "Pod")
POLICY = SyncPolicy(quota=(("count/pods", 2 * ONE), ("requests.cpu", 4 * ONE)))
STATUS = Patch(Side.TENANT, KIND, "web", "a", "u", {"status": {"phase": "Running"}}, "status")


class _OneTenant:
    """A quota, and what the caches have."""

    def __init__(self, policy: SyncPolicy = POLICY, **overhead: Object) -> None:
        self.totals = Totals()
        self.cached: dict[str, CachedObject] = {}
        self.quota = TenantQuota({"Pod": "count/pods"}, lambda: self.totals, overhead.get)
        self.quota.start(policy, lambda _: ())

    def admit(self, name: str, *cpus: str, found: Object | None = None) -> bool:
        return not self.quota.admit(("Pod", "web", name), _plan(name, *cpus, found=found), found).refusals

    def show(self, name: str, version: str, *cpus: str, is_relisting: bool = False) -> None:
        """The watch of the super cluster has this version."""
        cached = parse(json.dumps(_pod(name, *cpus, version=version)).encode())
        if name not in self.cached:
            self.totals.add("Pod", 1, cached.json_bytes)
        self.cached[name] = cached
        self.quota.changed(("Pod", "web", name), cached, version, is_relisting=is_relisting)

    def end(self, name: str) -> bool:
        """The watch shows the deletion; returns whether that makes room."""
        self.totals.add("Pod", -1, -self.cached.pop(name).json_bytes)
        return self.quota.changed(("Pod", "web", name), None, "", is_relisting=False)


def _pod(name: str, *cpus: str, version: str = "1", **spec: Any) -> Object:
    containers = [
        {"name": f"c{number}", "resources": {"requests": {"cpu": cpu}}} for number, cpu in enumerate(cpus)
    ]
    meta = {"namespace": "red-web", "name": name, "uid": "u", "resourceVersion": version}
    return {"metadata": meta, "spec": {"containers": containers, **spec}}


def _plan(name: str, *cpus: str, found: Object | None) -> Plan:
    if found is None:
        return Plan(Half((Create(Side.SUPER, KIND, _pod(name, *cpus)),)))
    sizes = _pod(name, *cpus)["spec"]
    resize = Patch(Side.SUPER, KIND, "red-web", name, "u", {"spec": sizes}, "resize", True)
    return Plan(Half((resize,)), Half((STATUS,)))


def test_what_was_allowed_counts_before_the_caches_show_it() -> None:
    world = _OneTenant()
    assert world.admit("a", "3")
    assert not world.admit("b", "2")
    assert world.admit("b", "1")
    assert not world.admit("c", "0")


def test_what_the_caches_show_counts_once() -> None:
    world = _OneTenant()
    assert world.admit("a", "2")
    world.quota.written(("Pod", "web", "a"), "7", None)
    world.show("a", "7", "2")
    assert world.admit("b", "2")


def test_the_end_of_an_earlier_object_is_not_that_of_the_new_one() -> None:
    world = _OneTenant()
    world.show("a", "1", "1")
    assert world.admit("a", "3")  # its name is free in the super cluster
    world.end("a")
    assert not world.admit("b", "2")
    assert world.admit("b", "1")


def test_a_size_counts_until_the_caches_have_its_version() -> None:
    """An event that was on its way has the old size."""
    world = _OneTenant()
    world.show("a", "1", "1")
    assert world.admit("a", "4", found=_pod("a", "1"))
    world.quota.written(("Pod", "web", "a"), "9", world.cached["a"])
    world.show("a", "5", "1")
    assert not world.admit("b", "1")
    world.show("a", "9", "4")
    world.show("a", "10", "1")
    assert world.admit("b", "3")


def test_a_size_in_one_piece_with_the_next_counts_no_more() -> None:
    """The caches have the kubelet's write already when the event of ours is reported."""
    world = _OneTenant()
    world.show("a", "1", "1")
    assert world.admit("a", "4", found=_pod("a", "1"))
    world.quota.written(("Pod", "web", "a"), "9", world.cached["a"])
    last = parse(json.dumps(_pod("a", "1", version="10")).encode())
    for version in ("9", "10"):
        world.quota.changed(("Pod", "web", "a"), last, version, is_relisting=False)
    assert world.admit("b", "3")


def test_a_new_list_shows_all_that_was_written() -> None:
    world = _OneTenant()
    world.show("a", "1", "1")
    assert world.admit("a", "4", found=_pod("a", "1"))
    world.quota.written(("Pod", "web", "a"), "9", world.cached["a"])
    world.show("a", "12", "2", is_relisting=True)
    assert world.admit("b", "2")


def test_what_was_refused_by_the_api_server_counts_no_more() -> None:
    world = _OneTenant()
    assert world.admit("a", "4")
    assert world.quota.forget(("Pod", "web", "a"))
    assert world.admit("b", "4")


def test_a_refused_plan_goes_up_and_deletes() -> None:
    world = _OneTenant()
    item = ("Pod", "web", "a")
    kept = world.quota.admit(item, _plan("a", "5", found=_pod("a", "1")), _pod("a", "1"))
    assert (kept.actions, kept.is_partial, len(kept.refusals)) == ((STATUS,), True, 1)
    tokens = IssueTokens("web", "a", "u", "default", "s", ())
    create = Create(Side.SUPER, KIND, _pod("a", "5"))
    assert world.quota.admit(item, Plan(Half((tokens, create))), None).actions == ()
    removal = Plan(Half((Delete(Side.SUPER, KIND, "red-web", "a", "u"),)))
    assert world.quota.admit(item, removal, _pod("a", "1")) is removal


def test_what_has_no_room_is_planned_again_once_something_ends() -> None:
    world = _OneTenant()
    world.show("a", "1", "4")
    assert not world.admit("b", "1")
    assert world.end("a")
    assert world.quota.refused_items() == [("Pod", "web", "b")]
    assert world.quota.refused_items() == []
    assert world.admit("b", "1")


def test_a_pod_that_ended_makes_room() -> None:
    world = _OneTenant()
    world.show("a", "1", "4")
    ended = parse(json.dumps(_pod("a", "4") | {"status": {"phase": "Succeeded"}}).encode())
    assert world.quota.changed(("Pod", "web", "a"), ended, ended.version, is_relisting=False)
    assert world.admit("b", "4")


def test_what_the_runtime_class_adds_counts_from_the_first() -> None:
    world = _OneTenant(kata={"cpu": "1"})
    plan = Plan(Half((Create(Side.SUPER, KIND, _pod("a", "4", runtimeClassName="kata")),)))
    refused = world.quota.admit(("Pod", "web", "a"), plan, None).refusals
    assert "requests.cpu 5 more" in refused[0].message


def test_a_large_object_may_be_written_anew_at_the_limit() -> None:
    world = _OneTenant(SyncPolicy(quota=(("vcnode.io/stored-bytes", 1_000 * ONE),)))
    world.totals = Totals(1_000, Counter({"Pod": 1}), objects=1)
    found: Object = {"metadata": {"name": "a"}, "data": {"text": "x" * 900}}
    for text, is_allowed in (("y" * 900, True), ("y" * 800, True), ("y" * 901, False)):
        patch = Patch(Side.SUPER, KIND, "red-web", "a", "u", {"data": {"text": text}})
        kept = world.quota.admit(("Pod", "web", "a"), Plan(Half((patch,))), found)
        assert (kept.refusals == ()) is is_allowed


def test_tokens_wait_for_room() -> None:
    world = _OneTenant()
    assert world.quota.wait_for_room() is None
    world.totals.stored_bytes = 128 << 20
    assert isinstance(world.quota.wait_for_room(), Wait)


def test_a_refused_resize_holds_no_image_back() -> None:
    world = _OneTenant()
    world.show("a", "1", "1", "2")
    found = _pod("a", "1", "2")
    image = Patch(
        Side.SUPER, KIND, "red-web", "a", "u", {"spec": {"containers": [{"name": "c0", "image": "i"}]}}
    )
    (resize,) = _plan("a", "9", "1", found=found).down.actions
    assert isinstance(resize, Patch)
    admitted = world.quota.admit(("Pod", "web", "a"), Plan(Half((image, resize))), found)
    (refusal,) = admitted.down.refusals
    assert "requests.cpu" in refusal.message
    given_back = {"spec": {"containers": [{"name": "c1", "resources": {"requests": {"cpu": "1"}}}]}}
    assert admitted.down.actions == (image, replace(resize, body=given_back))
