# SPDX-License-Identifier: Apache-2.0
import json
import os
from pathlib import Path

import msgspec
import pytest

from daemonkit.files.saved_state import MAX_AGE_S
from daemonkit.metrics import Counter
from dnsconfig.cluster.snapshot import Snapshot
from dnsconfig.resolve.network import RevocableAddresses
from dnsconfig.retention.resolver_retention import ResolverRetention, RevokedAddress
from dnsconfig.retention.sandbox_networks import KnownSandbox, SandboxNetworks
from dnsconfig.saved_state import (
    CONFIRM_S,
    INTERVAL_S,
    MAX_AHEAD_S,
    RestoredState,
    SavedObjects,
    SavedStateFile,
    objects_to_save,
    snapshot_of,
)
from tests.unit.dnsconfig.cluster.test_snapshot import snapshot

pytestmark = pytest.mark.asyncio

HOLD_S = 600.0
NOW = 1_800_000_000.0
TEXTS = {"uid-a-shop-web-0": "nameserver 10.0.0.1\n"}
NETWORKS: dict[str, tuple[str, ...]] = {"uid-a-shop-web-0": ("b",)}


class StateDisk:
    """A directory and two clocks."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "state.json"
        self.wall, self.now = NOW, 0.0
        self.errors = Counter()
        self.saved = SavedStateFile(directory, self.errors, wall=lambda: self.wall, now=lambda: self.now)
        self.saved.prepare()

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.wall += seconds

    def written(self) -> bytes:
        return self.path.read_bytes() if self.path.exists() else b""


@pytest.fixture
def disk(tmp_path: Path) -> StateDisk:
    return StateDisk(tmp_path / "state")


def retention(**given: str) -> ResolverRetention:
    made = ResolverRetention(HOLD_S)
    made.texts |= TEXTS | given
    made.networks |= dict.fromkeys(made.texts, ("b",))
    return made


def state(**given: str) -> SavedObjects:
    return objects_to_save(snapshot(), retention(**given), SandboxNetworks(), NOW)


async def test_a_snapshot_is_restored_unchanged(disk: StateDisk) -> None:
    await disk.saved.save(state(), 2.0)
    disk.later(60.0)
    assert disk.saved.load() == RestoredState(snapshot(), TEXTS, 62.0, text_networks=NETWORKS)
    assert snapshot_of(
        objects_to_save(Snapshot(), ResolverRetention(HOLD_S), SandboxNetworks(), NOW)
    ) == Snapshot({}, {}, {}, {})


async def test_revocations_are_restored_and_clamped_to_now(disk: StateDisk) -> None:
    made = retention(x="nameserver 10.0.0.2\n")
    made.revocable |= {
        "uid-a-shop-web-0": RevocableAddresses("b", ("10.0.0.1",)),
        "x": RevocableAddresses("c", ("10.0.0.2", "fd00::2")),
    }
    made.revoked |= {
        "uid-a-shop-web-0": RevokedAddress(5.0, is_confirmed=False),
        "x": RevokedAddress(7.0, is_confirmed=True, reduced_text="# why\n"),
    }
    await disk.saved.save(objects_to_save(snapshot(), made, SandboxNetworks(), NOW), 0.0)
    restored = disk.saved.load()
    assert restored is not None
    # The next monotonic clock starts elsewhere; a wall clock that was set back clamps to now.
    again = restored.retention(HOLD_S, NOW + 100.0, 50.0)
    assert (again.texts, again.networks, again.revocable) == (
        made.texts,
        made.networks,
        made.revocable,
    )
    assert again.revoked == {
        "uid-a-shop-web-0": RevokedAddress(-96.0, is_confirmed=False),
        "x": RevokedAddress(-94.0, is_confirmed=True, reduced_text="# why\n"),
    }
    assert {each.since for each in restored.retention(HOLD_S, NOW - 1000.0, 50.0).revoked.values()} == {50.0}


@pytest.mark.parametrize("since", [5.0, 5.001, 5.4, 5.5, 5.7, 5.999])
async def test_a_restart_delays_no_removal(since: float) -> None:
    """Else the next daemon restores for a moment what this one has just removed."""
    made = retention()
    made.revoked["x"] = RevokedAddress(since, is_confirmed=True)
    for wall_at_zero in (NOW, NOW + 0.3, NOW - 0.0001):
        saved = objects_to_save(snapshot(), made, SandboxNetworks(), wall_at_zero)
        again = RestoredState(snapshot(), revoked=saved.revoked).retention(HOLD_S, wall_at_zero, 60.0)
        assert since - 2.0 < again.revoked["x"].since <= since


async def test_keys_of_the_file_stay_those_of_version_1() -> None:
    assert list(json.loads(msgspec.json.encode(state()))) == [
        "pods",
        "namespaces",
        "clusters",
        "services",
        "networks",
        "heard",  # saved as: a key of version 1 of the file
        "given",
        "version",
        "origins",
        "losses",
        "givenNetworks",
        "attachments",
    ]


async def test_a_file_without_revocations_is_read(disk: StateDisk) -> None:
    value = json.loads(msgspec.json.encode(state()))
    for later in ("origins", "losses", "givenNetworks", "attachments"):
        del value[later]
    disk.path.write_text(json.dumps(value))
    os.utime(disk.path, (NOW, NOW))
    restored = disk.saved.load()
    assert restored == RestoredState(snapshot(), TEXTS, 0.0)
    # Such a file lacks the networks of a text, and a guess could be another tenant's server.
    assert restored.retention(HOLD_S, NOW, 0.0).texts == {}
    assert restored.sandbox_networks().known == {}


async def test_an_older_texts_network_is_that_of_its_cluster_ips(disk: StateDisk) -> None:
    made = retention(x="nameserver 192.0.2.1\n")
    made.revocable["uid-a-shop-web-0"] = RevocableAddresses("blue", ("10.0.0.1",))
    value = json.loads(msgspec.json.encode(objects_to_save(snapshot(), made, SandboxNetworks(), NOW)))
    del value["givenNetworks"], value["attachments"]
    disk.path.write_text(json.dumps(value))
    os.utime(disk.path, (NOW, NOW))
    restored = disk.saved.load()
    assert restored is not None
    again = restored.retention(HOLD_S, NOW, 0.0)
    assert (again.texts, again.networks) == (TEXTS, {"uid-a-shop-web-0": ("blue",)})
    assert restored.sandbox_networks().known == {"uid-a-shop-web-0": KnownSandbox(("blue",))}


async def test_sandbox_networks_are_restored_unchanged(disk: StateDisk) -> None:
    made = SandboxNetworks()
    made.known |= {
        "g": KnownSandbox(("blue", "red"), is_guest=True),
        "p": KnownSandbox(("red",), since="then"),
    }
    await disk.saved.save(objects_to_save(snapshot(), retention(), made, NOW), 0.0)
    restored = disk.saved.load()
    assert restored is not None
    assert restored.sandbox_networks().known == made.known


async def test_changed_state_is_written_not_too_often(disk: StateDisk) -> None:
    await disk.saved.save(state(), 0.0)
    first = disk.written()
    await disk.saved.save(state(x="y"), 0.0)
    assert disk.written() == first
    disk.later(INTERVAL_S)
    await disk.saved.save(state(x="y"), 0.0)
    assert disk.written() != first
    await disk.saved.save(state(x="z"), 0.0, is_last=True)
    assert b'"x":"z"' in disk.written()


async def test_unchanged_state_is_confirmed(disk: StateDisk) -> None:
    await disk.saved.save(state(), 0.0)
    disk.later(CONFIRM_S / 2)
    await disk.saved.save(state(), 0.0)
    assert disk.path.stat().st_mtime == NOW
    disk.later(CONFIRM_S / 2)
    await disk.saved.save(state(), 3.0)
    assert disk.path.stat().st_mtime == NOW + CONFIRM_S - 3.0


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b"[" * 100_000, b'{"version": 2}'])
async def test_a_damaged_file_is_not_used(disk: StateDisk, data: bytes) -> None:
    disk.path.write_bytes(data)
    assert disk.saved.load() is None


async def test_expired_and_future_state_is_not_used(disk: StateDisk) -> None:
    assert disk.saved.load() is None
    await disk.saved.save(state(), 0.0)
    disk.later(MAX_AGE_S + 1)
    assert disk.saved.load() is None
    # A small correction of the clock does not make it of the future; a clock that is behind may have
    # been so for weeks.
    disk.wall = NOW - MAX_AHEAD_S
    restored = disk.saved.load()
    assert restored is not None
    assert (restored.age_s, restored.expires_at(7.0)) == (0.0, 7.0 + MAX_AGE_S)
    disk.wall = NOW - MAX_AHEAD_S - 1
    assert disk.saved.load() is None
    disk.wall = NOW + 100
    restored = disk.saved.load()
    assert restored is not None
    assert restored.expires_at(7.0) == 7.0 + MAX_AGE_S - 100
    disk.path.write_bytes(disk.written().replace(b'"version":1', b'"version":7'))
    assert disk.saved.load() is None


async def test_a_full_disk_is_counted_and_retried(disk: StateDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("daemonkit.files.saved_state.write_atomically", full)
        await disk.saved.save(state(), 0.0)
        disk.later(INTERVAL_S)
        await disk.saved.save(state(), 0.0)
    assert disk.errors.value == 2
    disk.later(INTERVAL_S)
    await disk.saved.save(state(), 0.0)
    assert disk.written()


async def test_a_deleted_file_is_written_again(disk: StateDisk) -> None:
    await disk.saved.save(state(), 0.0)
    disk.path.unlink()
    disk.later(CONFIRM_S)
    await disk.saved.save(state(), 0.0)
    disk.later(INTERVAL_S)
    await disk.saved.save(state(), 0.0)
    assert disk.written()
