# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

from kata_bridge.sandboxes.core.sandbox import (
    CONFIG_HASH,
    Appeared,
    Sandbox,
    Seen,
    Vanished,
    sandbox_of,
)
from kata_bridge.sandboxes.core.tracker import GRACE_S, Sandboxes

ANNOTATIONS = {
    "tenancy.x-k8s.io/cluster": "vc-1-a",
    "tenancy.x-k8s.io/namespace": "shop",
    "tenancy.x-k8s.io/uid": "11111111-1111-1111-1111-111111111111",
}
WEB = Seen(
    id="s1",
    namespace="vc-1-a-shop",
    name="web-0",
    uid="22222222-2222-2222-2222-222222222222",
    labels={"arktos.futurewei.com/network": "blue"},
    annotations=ANNOTATIONS,
    runtime_handler="kata-qemu",
    ips=("10.1.0.5",),
    netns="/run/netns/x",
)
LISTED = replace(WEB, ips=(), netns="", attempt=0, created_at_ns=5)
DNS = Seen(id="s2", namespace="kube-system", name="dns", uid="33333333-3333-3333-3333-333333333333")


def test_a_sandbox_is_the_tenants_pod_that_its_annotations_name() -> None:
    assert sandbox_of(WEB) == Sandbox(
        id="s1",
        namespace="vc-1-a-shop",
        name="web-0",
        uid="22222222-2222-2222-2222-222222222222",
        tenant="vc-1-a",
        tenant_namespace="shop",
        tenant_name="web-0",
        networks=("blue",),
        ips=("10.1.0.5",),
        runtime_handler="kata-qemu",
        netns="/run/netns/x",
    )


def test_a_pod_without_them_is_nobodys_and_in_the_default_network() -> None:
    assert sandbox_of(DNS) == Sandbox(
        id="s2",
        namespace="kube-system",
        name="dns",
        uid="33333333-3333-3333-3333-333333333333",
        networks=("default",),
    )


def test_half_of_them_is_a_refusal_and_never_the_super_cluster() -> None:
    sandbox = sandbox_of(replace(WEB, annotations={"tenancy.x-k8s.io/cluster": "vc-1-a"}))
    assert sandbox.tenant == ""
    assert sandbox.refusal == ("whose pod it is cannot be told: not all of its ownership annotations are set")


def test_a_static_pod_goes_by_the_hash_of_its_file_where_it_has_no_uid() -> None:
    seen = replace(DNS, uid="", annotations={CONFIG_HASH: "0123456789abcdef0123456789abcdef"})
    assert sandbox_of(seen).uid == "0123456789abcdef0123456789abcdef"


def test_nri_tells_of_a_sandbox_before_lists_have_it_and_of_its_end_before_lists_lose_it() -> None:
    sandboxes = Sandboxes()
    assert sandboxes.ran(WEB, 100.0) == (Appeared(sandbox_of(WEB)),)
    assert sandboxes.listed((), 101.0, 101.1) == ()
    assert sandboxes.listed((LISTED,), 110.0, 110.1) == ()  # it has no more to say
    assert sandboxes.stopped("s1") == (Vanished("s1"),)
    assert sandboxes.listed((LISTED,), 111.0, 111.1) == ()
    assert sandboxes.listed((replace(LISTED, is_alive=False),), 112.0, 112.1) == ()
    assert sandboxes.listed((), 120.0, 120.1) == ()
    assert not sandboxes.knows("s1")


def test_what_no_list_ever_had_is_gone_after_the_grace() -> None:
    sandboxes = Sandboxes()
    sandboxes.ran(WEB, 100.0)
    assert sandboxes.listed((), 100.0 + GRACE_S - 1, 140.0) == ()
    assert sandboxes.listed((), 100.0 + GRACE_S, 140.0) == (Vanished("s1"),)


def test_a_list_that_lost_what_it_had_is_believed_at_once() -> None:
    sandboxes = Sandboxes()
    sandboxes.listed((LISTED,), 1.0, 1.0)
    assert sandboxes.listed((), 2.0, 2.0) == (Vanished("s1"),)


def test_dead_sandboxes_of_a_synchronize_are_nothing_and_end_what_was_known() -> None:
    sandboxes = Sandboxes()
    dead = replace(WEB, id="s0", is_alive=False, netns="")
    assert sandboxes.synchronized((dead, WEB), 1.0) == (Appeared(sandbox_of(WEB)),)
    assert sandboxes.synchronized((dead, replace(WEB, is_alive=False)), 2.0) == (Vanished("s1"),)


def test_of_several_sandboxes_of_a_pod_the_newest_counts() -> None:
    sandboxes = Sandboxes()
    first, second = replace(LISTED, attempt=0), replace(LISTED, id="s9", attempt=1)
    assert sandboxes.listed((second, first), 1.0, 1.0) == (Appeared(sandbox_of(second)),)
    third = replace(WEB, id="s10")
    assert sandboxes.ran(third, 2.0) == (Vanished("s9"), Appeared(sandbox_of(third)))
    # The list tells its attempt; the order stays.
    listed = (first, second, replace(third, attempt=2))
    assert sandboxes.listed(listed, 3.0, 3.0) == ()
    assert sandboxes.stopped("s10") == (Vanished("s10"), Appeared(sandbox_of(second)))


def test_one_that_is_not_ready_gives_way_to_an_older_one_that_is() -> None:
    sandboxes = Sandboxes()
    newer = replace(LISTED, id="s9", attempt=1, is_alive=False)
    assert sandboxes.listed((LISTED, newer), 1.0, 1.0) == (Appeared(sandbox_of(LISTED)),)


def test_a_change_of_labels_is_a_change() -> None:
    sandboxes = Sandboxes()
    sandboxes.ran(WEB, 1.0)
    moved = replace(LISTED, labels={"arktos.futurewei.com/network": "red"})
    (change,) = sandboxes.listed((moved,), 2.0, 2.0)
    assert isinstance(change, Appeared)
    assert change.sandbox.networks == ("red",)
    assert change.sandbox.ips == ("10.1.0.5",)


def test_files_place_sandboxes_beside_those_of_the_runtime() -> None:
    sandboxes = Sandboxes()
    placed = Sandbox(id="lab", namespace="n", name="p", uid="u", channels=("netns",))
    assert sandboxes.placed({"lab": placed}) == (Appeared(placed),)
    assert sandboxes.listed((LISTED,), 1.0, 1.0) == (Appeared(sandbox_of(LISTED)),)
    assert set(sandboxes.current) == {"lab", "s1"}
    assert sandboxes.placed({}) == (Vanished("lab"),)
