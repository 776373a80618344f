# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

from kata_bridge.sandboxes.core.sandbox import Appeared, Sandbox, SandboxObservation, Vanished, sandbox_of
from kata_bridge.sandboxes.core.tracker import GRACE_S, SandboxTracker

WEB = SandboxObservation(
    id="s1",
    namespace="vc-1-a-shop",
    name="web-0",
    uid="22222222-2222-2222-2222-222222222222",
    labels={"arktos.futurewei.com/network": "blue"},
    ips=("10.1.0.5",),
    netns="/run/netns/x",
)
LISTED = replace(WEB, ips=(), netns="", attempt=0, created_at_ns=5)


def test_nri_reports_starts_and_ends_before_lists_do() -> None:
    tracker = SandboxTracker()
    assert tracker.started(WEB, 100.0) == (Appeared(sandbox_of(WEB)),)
    assert tracker.listed((), 101.0, 101.1) == ()
    assert tracker.listed((LISTED,), 110.0, 110.1) == ()  # it has nothing new
    assert tracker.stopped("s1") == (Vanished("s1"),)
    assert tracker.listed((LISTED,), 111.0, 111.1) == ()
    assert tracker.listed((replace(LISTED, is_alive=False),), 112.0, 112.1) == ()
    assert tracker.listed((), 120.0, 120.1) == ()
    assert not tracker.is_known("s1")


def test_a_sandbox_that_no_list_ever_had_is_dropped_after_grace() -> None:
    tracker = SandboxTracker()
    tracker.started(WEB, 100.0)
    assert tracker.listed((), 100.0 + GRACE_S - 1, 140.0) == ()
    assert tracker.listed((), 100.0 + GRACE_S, 140.0) == (Vanished("s1"),)


def test_a_sandbox_that_left_the_list_is_removed_at_once() -> None:
    tracker = SandboxTracker()
    tracker.listed((LISTED,), 1.0, 1.0)
    assert tracker.listed((), 2.0, 2.0) == (Vanished("s1"),)


def test_dead_sandboxes_of_a_synchronize_are_dropped() -> None:
    tracker = SandboxTracker()
    dead = replace(WEB, id="s0", is_alive=False, netns="")
    assert tracker.synchronized((dead, WEB), 1.0) == (Appeared(sandbox_of(WEB)),)
    assert tracker.synchronized((dead, replace(WEB, is_alive=False)), 2.0) == (Vanished("s1"),)


def test_the_newest_sandbox_of_a_pod_is_current() -> None:
    tracker = SandboxTracker()
    first, second = replace(LISTED, attempt=0), replace(LISTED, id="s9", attempt=1)
    assert tracker.listed((second, first), 1.0, 1.0) == (Appeared(sandbox_of(second)),)
    third = replace(WEB, id="s10")
    assert tracker.started(third, 2.0) == (Vanished("s9"), Appeared(sandbox_of(third)))
    # The list has its attempt; the order stays.
    listed = (first, second, replace(third, attempt=2))
    assert tracker.listed(listed, 3.0, 3.0) == ()
    assert tracker.stopped("s10") == (Vanished("s10"), Appeared(sandbox_of(second)))


def test_a_newer_sandbox_that_is_not_ready_is_not_current() -> None:
    tracker = SandboxTracker()
    newer = replace(LISTED, id="s9", attempt=1, is_alive=False)
    assert tracker.listed((LISTED, newer), 1.0, 1.0) == (Appeared(sandbox_of(LISTED)),)


def test_a_changed_label_is_a_change() -> None:
    tracker = SandboxTracker()
    tracker.started(WEB, 1.0)
    moved = replace(LISTED, labels={"arktos.futurewei.com/network": "red"})
    (change,) = tracker.listed((moved,), 2.0, 2.0)
    assert isinstance(change, Appeared)
    assert change.sandbox.networks == ("red",)
    assert change.sandbox.ips == ("10.1.0.5",)


def test_static_sandboxes_stand_beside_the_runtimes() -> None:
    tracker = SandboxTracker()
    static = Sandbox(id="lab", namespace="n", name="p", uid="u", channels=("netns",))
    assert tracker.set_static({"lab": static}) == (Appeared(static),)
    assert tracker.listed((LISTED,), 1.0, 1.0) == (Appeared(sandbox_of(LISTED)),)
    assert set(tracker.current) == {"lab", "s1"}
    assert tracker.set_static({}) == (Vanished("lab"),)
