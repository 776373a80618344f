# SPDX-License-Identifier: Apache-2.0
"""The daemon as a process that ends and starts again: what it knows then, and what it keeps on disk."""

import functools
import signal
from pathlib import Path

import pytest

from tests.functional.daemon_node import running
from tests.functional.dnsconfig.two_tenants import node
from tests.unit.dnsconfig.objects import service

pytestmark = pytest.mark.asyncio


async def test_a_start_without_an_api_server_uses_what_is_saved(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        uid, waiting = here.put_pod("a", "web"), here.put_pod("a", "late", network="red")
        await here.until(lambda: here.text(uid) and here.waits(waiting))
        await here.until(here.is_ready)
        assert await here.stop() == 0
        await here.apiserver.stop()
        here.bridge.lose_state()
        await here.start()
        await here.until(lambda: here.text(uid) and here.waits(waiting))
        assert here.waits(waiting) == "network red does not exist"
        status = await here.status()
        assert status["usesSavedState"]
        assert await here.is_ready()
        # What the API server then tells counts.
        here.put(service("a", "default", "10.96.0.77"))
        await here.apiserver.start()
        await here.until(lambda: here.servers(uid) == ["10.96.0.77"])

        async def has_heard_all() -> bool:
            return not (await here.status())["usesSavedState"]

        await here.until(has_heard_all)


async def test_without_an_api_server_and_without_saved_state_everybody_waits(tmp_path: Path) -> None:
    async with running(node(tmp_path), with_apiserver=False) as here:
        here.bridge.add("g1", "a", "a-shop/web")
        await here.until(lambda: here.waits("g1"))
        assert here.waits("g1") == "this node's pods are not synced with the API server yet"
        assert not await here.is_ready()
        here.put_pod("a", "web")
        await here.apiserver.start()
        await here.until(lambda: here.servers("g1") == ["10.96.0.10"] and not here.waits("g1"))


async def test_killed_at_any_moment_it_goes_on_where_it_was(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        uid = here.put_pod("a", "web")
        await here.until(lambda: here.text(uid))

        def has(uid: str, address: str) -> bool:
            return here.servers(uid) == [address]

        for number in range(3):
            assert await here.stop(signal.SIGKILL) == -signal.SIGKILL
            address = f"10.96.1.{number}"
            here.put(service("a", "default", address))
            await here.start()
            await here.until(functools.partial(has, uid, address))


@pytest.mark.parametrize("has_saved", [False, True])
async def test_a_restart_moves_no_guest_whose_label_was_changed(tmp_path: Path, has_saved: bool) -> None:
    """Guests are told one after another; with and without what was saved, nobody goes by its label first."""
    async with running(node(tmp_path)) as here:
        uids = [here.put_pod("a", f"w{number}", network="blue") for number in range(20)]
        for number, uid in enumerate(uids):
            here.bridge.add(f"g{number}", "a", f"a-shop/w{number}", uid=uid, networks=("blue",))
        await here.until(lambda: all(here.servers(uid) == ["10.96.0.11"] for uid in uids))
        await here.until(here.is_ready)
        for number in range(20):
            here.put_pod("a", f"w{number}", network="default")
        assert await here.stop() == 0
        if not has_saved:
            (tmp_path / "state" / "state.json").unlink()
        guests = [here.bridge.guests[f"g{number}"].guest for number in range(20)]
        here.bridge.guests.clear()
        here.bridge.lose_state()
        here.bridge.resolv_conf_requests.clear()
        here.bridge.is_synced = False
        other = here.put_pod("a", "other")
        here.bridge.add("other", "a", "a-shop/other", uid=other, networks=("default",))
        await here.start()
        await here.until(lambda: here.servers(other) == ["10.96.0.10"])
        for guest in guests:
            pod = f"{guest.namespace}/{guest.name}"
            here.bridge.add(guest.id, "a", pod, uid=guest.uid, networks=guest.networks)
        await here.until(lambda: all(here.servers(uid) == ["10.96.0.11"] for uid in uids))
        here.bridge.finish_sync()
        late = here.put_pod("a", "late")
        await here.until(lambda: here.servers(late) == ["10.96.0.10"])
        ours = [each for each in here.bridge.resolv_conf_requests if each.networks == ("blue",)]
        assert len(ours) == len(uids)
        assert {each.pod_uid for each in here.bridge.resolv_conf_requests if not each.guest} == {late}


async def test_a_restart_moves_no_pod_that_is_no_guest(tmp_path: Path) -> None:
    """What says where it is is what was saved; its text comes from its network of now as ever."""
    async with running(node(tmp_path)) as here:
        uid = here.put_pod("a", "web", network="blue")

        async def is_answered() -> bool:
            return [pod["state"] for pod in (await here.status())["pods"]] == ["applied"]

        await here.until(is_answered)
        here.put_pod("a", "web", network="default")
        assert await here.stop() == 0
        here.bridge.lose_state()
        here.put(service("a", "blue", "10.96.0.12"))
        sent = len(here.bridge.resolv_conf_requests)
        await here.start()
        late = here.put_pod("a", "late")
        await here.until(lambda: here.servers(uid) == ["10.96.0.12"] and here.text(late))
        its = [each for each in here.bridge.resolv_conf_requests[sent:] if each.pod_uid == uid]
        assert {each.networks for each in its} == {("blue",)}
        assert not any("10.96.0.10" in each.text for each in its)


async def test_the_state_is_nobody_elses_to_read(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        uid = here.put_pod("a", "web")
        await here.until(lambda: here.text(uid))
        await here.until(here.is_ready)
        await here.stop()
        state = tmp_path / "state"
        assert [path.name for path in state.iterdir()] == ["state.json"]
        assert state.stat().st_mode & 0o777 == 0o700
        assert (state / "state.json").stat().st_mode & 0o777 == 0o600
