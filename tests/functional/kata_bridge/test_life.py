# SPDX-License-Identifier: Apache-2.0
"""From start to stop: invalid configurations, the first sync, a second bridge, the drain."""

import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from bridge_api.client import BridgeClient
from bridge_api.messages import GuestEventKind, ResultCode
from daemonkit.status.server import StatusError, fetch
from tests.functional.kata_bridge.served_bridge import DEADLINE_S, ruleset
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]


def written(directory: Path, **settings: Any) -> Path:
    document = {
        "apiVersion": "vcnode.io/v1alpha1",
        "kind": "KataBridgeConfiguration",
        "stateDirectory": str(directory / "state"),
        "lockFile": str(directory / "lock"),
        "listen": {"socket": str(directory / "bridge.sock")},
        "sandboxes": {"directory": str(directory / "guests")},
        "agent": {"socket": str(directory / "agents.sock")},
        "status": {"socket": str(directory / "status.sock")},
        "drain": {"seconds": 1},
        **settings,
    }
    path = directory / "config.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def bridge_command(config: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "kata_bridge", "--config", str(config), *arguments]


def is_ready(directory: Path) -> bool:
    try:
        return fetch(directory / "status.sock", "/readyz", 2.0)[0] == 200
    except (OSError, StatusError):
        return False


@contextmanager
def running(directory: Path, **settings: Any) -> Iterator["subprocess.Popen[str]"]:
    (directory / "guests").mkdir(exist_ok=True)
    with (directory / "log").open("a") as log:
        config = written(directory, **settings)
        process = subprocess.Popen(bridge_command(config), cwd=ROOT, stderr=log, text=True)
    try:
        wait_until(lambda: is_ready(directory))
        yield process
    finally:
        process.kill()
        process.wait()


def place(directory: Path, name: str) -> None:
    text = f"apiVersion: vcnode.io/v1alpha1\nkind: Guest\nnamespace: n\nname: {name}\n"
    (directory / "guests" / f"{name}.yaml").write_text(text)


def test_check_config_accepts_and_starts_nothing(tmp_path: Path) -> None:
    config = written(tmp_path)
    (tmp_path / "guests").mkdir()
    ended = subprocess.run(
        bridge_command(config, "--check-config"), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, f"{config}: ok\n")
    assert not (tmp_path / "state").exists()


def test_a_second_bridge_exits_and_names_the_first(tmp_path: Path) -> None:
    with running(tmp_path) as first:
        second = subprocess.run(
            bridge_command(tmp_path / "config.yaml"),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert second.returncode == 1
        assert f"another kata-bridge runs on this node: {tmp_path}/lock, pid {first.pid}" in second.stderr
        assert is_ready(tmp_path), "the first one goes on"


def test_ready_follows_the_first_sync_and_sigterm_stops(tmp_path: Path) -> None:
    (tmp_path / "guests").mkdir()
    place(tmp_path, "g")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(DEADLINE_S)
        environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}  # noqa: TID251 - the child's
        process = subprocess.Popen(
            bridge_command(written(tmp_path)), cwd=ROOT, env=environment, stderr=subprocess.DEVNULL
        )
        try:
            assert manager.recv(100) == b"READY=1\nSTATUS=ready"
            status = json.loads(fetch(tmp_path / "status.sock", "/status", 2.0)[1])
            assert [guest["id"] for guest in status["guests"]] == ["g"]
            process.send_signal(signal.SIGTERM)
            assert manager.recv(100) == b"STOPPING=1\nSTATUS=stopping"
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()
            process.wait()
    assert not (tmp_path / "bridge.sock").exists()


def test_watch_and_push_through_the_real_socket(tmp_path: Path) -> None:
    async def talk() -> tuple[list[GuestEventKind], dict[str, ResultCode]]:
        async with BridgeClient(tmp_path / "bridge.sock", timeout_s=DEADLINE_S) as client:
            kinds = []
            async with asyncio.timeout(DEADLINE_S):
                async for event in client.watch_guests():
                    kinds.append(event.kind)
                    if event.kind is GuestEventKind.SYNCED:
                        break
                codes = {each.guest: each.code async for each in client.set_ruleset(["g"], ruleset(1))}
            return kinds, codes

    (tmp_path / "guests").mkdir()
    place(tmp_path, "g")
    with running(tmp_path) as process:
        kinds, codes = asyncio.run(talk())
        assert kinds[-1] is GuestEventKind.SYNCED
        assert GuestEventKind.PRESENT in kinds
        assert codes == {"g": ResultCode.UNREACHABLE}
        status = json.loads(fetch(tmp_path / "status.sock", "/status", 2.0)[1])
        assert status["guests"][0]["message"] == "agent: the guest's agent has not attached"
        assert status["guests"][0]["desiredGeneration"] == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0


def test_connection_limits_fit_the_descriptor_limit(tmp_path: Path) -> None:
    """Four addresses with 256 silent connections each are within the relay's limits, and took all 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with running(tmp_path) as process:
            assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_socket_of_a_dead_bridge_is_replaced(tmp_path: Path) -> None:
    with running(tmp_path) as first:
        first.kill()
        first.wait()
        assert (tmp_path / "bridge.sock").exists()
    with running(tmp_path):
        mode = (tmp_path / "bridge.sock").stat().st_mode & 0o777
        assert mode == 0o600, "without a group it is for its owner alone"


def test_sighup_reloads_runtimes_and_keeps_the_old_if_invalid(tmp_path: Path) -> None:
    (tmp_path / "guests").mkdir()
    place(tmp_path, "g")
    with running(tmp_path) as process:
        written(tmp_path, drift={"checkSeconds": "often"})
        process.send_signal(signal.SIGHUP)
        log = tmp_path / "log"
        wait_until(lambda: "the old one stays" in log.read_text())
        written(tmp_path)
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: "configuration reloaded" in log.read_text())
        assert process.poll() is None
