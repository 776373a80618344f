# SPDX-License-Identifier: Apache-2.0
"""Full disks, and no descriptors: tenants are served as far as possible, and fully once there is room."""

import contextlib
import json
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.vnagent.node import DEADLINE_S, AgentNode, head, received, reply_of, tenant_pod
from tests.functional.vnagent.shop_and_bank import BANK, FOLLOW, SHOP, has_saved, serves
from tests.waiting import wait_until


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    if os.geteuid() != 0:
        pytest.skip("a file system of its own needs root")
    path = tmp_path / "tiny"
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "tmpfs", str(path)],
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"cannot mount: {done.stderr.decode(errors='replace').strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_a_full_disk_for_state_and_audit_log(tmp_path: Path, tiny_disk: Path) -> None:
    """Served throughout; whole again when there is room, with no line torn and none doubled."""
    audit = tiny_disk / "audit.jsonl"
    settings = {"audit": {"file": str(audit)}, "stateDirectory": str(tiny_disk / "state")}
    with AgentNode(tmp_path / "n", ["ten-a"], [SHOP], settings) as node:
        pods_file = tiny_disk / "state" / "pods.json"
        wait_until(pods_file.exists, within_s=DEADLINE_S)
        saved = pods_file.read_bytes()
        filler = tiny_disk / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 4096)
        node.set_pods(SHOP, tenant_pod("ten-a", "web", "cart"))
        for _ in range(40):
            assert serves(node)
        wait_until(lambda: node.daemon.metric("vcnode_vnagent_state_errors_total") > 0, within_s=DEADLINE_S)
        assert pods_file.read_bytes() == saved  # the old one, whole
        assert node.daemon.is_ready()
        filler.unlink()
        wait_until(lambda: b'"cart"' in pods_file.read_bytes(), within_s=DEADLINE_S)
        expected = 2 * 40
        wait_until(lambda: audit.read_bytes().count(b"\n") >= expected, within_s=DEADLINE_S)
        lines = audit.read_text(encoding="utf-8").splitlines()
        ids = [json.loads(line)["requestId"] for line in lines]
        assert len(ids) == len(set(ids)) == expected
        assert node.daemon.metric("vcnode_vnagent_audit_lines_lost_total") == 0
        assert [path.name for path in (tiny_disk / "state").iterdir() if path.name.startswith(".")] == []


def test_a_dial_without_a_descriptor_gets_a_response(tmp_path: Path) -> None:
    """502 and not silence, and all is well once there are descriptors again."""
    # Nothing else may open or close a descriptor meanwhile: no further read of /pods, no state to
    # be saved.
    settings = {"pods": {"source": "kubelet", "intervalSeconds": 300}}
    with AgentNode(tmp_path / "n", ["ten-a", "ten-b"], [SHOP, BANK], settings) as node:
        wait_until(lambda: has_saved(node), within_s=DEADLINE_S)
        limits = resource.prlimit(node.daemon.pid, resource.RLIMIT_NOFILE)
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(node.client("ten-a")) for _ in range(8)]
            for client in clients:
                client.send(head("GET /healthz"))
                assert reply_of(client) is not None
                client.received.clear()
            numbers = [int(path.name) for path in Path(f"/proc/{node.daemon.pid}/fd").iterdir()]
            free = set(range(max(numbers) + 1)) - set(numbers)
            assert len(free) < 4
            resource.prlimit(node.daemon.pid, resource.RLIMIT_NOFILE, (max(numbers) + 1, limits[1]))
            statuses = []
            for client in clients:
                client.send(head(FOLLOW))
                assert received(client, b"\r\n\r\n")
                statuses.append(bytes(client.received[9:12]))
            # The first ones found a connection in the pool, or a number that was free.
            assert statuses == sorted(statuses)
            assert statuses[-1] == b"502"
            resource.prlimit(node.daemon.pid, resource.RLIMIT_NOFILE, limits)
            wait_until(lambda: serves(node), within_s=DEADLINE_S)
        wait_until(lambda: node.daemon.metric("vcnode_vnagent_kubelet_connections") <= 3, within_s=DEADLINE_S)
