# SPDX-License-Identifier: Apache-2.0
import json
import os
from pathlib import Path

import pytest

import kubeproxy_ext.saved_state
from daemonkit.files.saved_state import MAX_AGE_S
from daemonkit.metrics import Counter
from kubeproxy_ext.cache.tenants import RestoredTenant, SavedTenant
from kubeproxy_ext.compute.objects import (
    EndpointSliceObject,
    Meta,
    NamespaceObject,
    ServiceObject,
    SliceEndpoint,
)
from kubeproxy_ext.compute.packed_slices import PackedSlice, pack
from kubeproxy_ext.saved_state import CONFIRM_S, INTERVAL_S, SavedTenants

pytestmark = pytest.mark.asyncio

NOW = 1_800_000_000.0


def state(tenant: str = "a", *services: str) -> SavedTenant:
    return SavedTenant(
        tenant,
        [NamespaceObject(Meta(name=f"{tenant}-web", annotations={"tenancy.x-k8s.io/cluster": tenant}))],
        [ServiceObject(Meta(name=name, namespace=f"{tenant}-web")) for name in services],
        [pack(EndpointSliceObject(Meta(name="x"), endpoints=[SliceEndpoint(addresses=["10.0.0.1"])]))],
    )


class TenantFiles:
    """A directory, two clocks and the current state."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.wall = NOW
        self.now = 0.0
        self.known = {"a": state("a", "one")}
        self.errors = Counter()
        self.saved = self.started()

    def started(self) -> SavedTenants:
        saved = SavedTenants(
            self.directory,
            lambda tenant: self.known[tenant],
            self.errors,
            wall=lambda: self.wall,
            now=lambda: self.now,
        )
        saved.prepare()
        return saved

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.wall += seconds


@pytest.fixture
def disk(tmp_path: Path) -> TenantFiles:
    return TenantFiles(tmp_path / "state")


async def test_saved_tenant_is_restored_with_its_age(disk: TenantFiles) -> None:
    disk.saved.changed({"a"})
    await disk.saved.keep({"a": 2.0})
    disk.later(100.0)
    assert await disk.started().load("a") == RestoredTenant(disk.known["a"], 102.0)
    assert await disk.started().load("b") is None
    assert (disk.directory.stat().st_mode & 0o777) == 0o700


async def test_tenant_that_has_not_synced_is_not_saved(disk: TenantFiles) -> None:
    disk.saved.changed({"a"})
    await disk.saved.keep({})
    await disk.saved.write_due({})
    assert list(disk.directory.iterdir()) == []


async def test_churn_is_written_at_intervals_and_at_the_end(disk: TenantFiles) -> None:
    disk.saved.changed({"a"})
    await disk.saved.keep({"a": 0.0})
    disk.known["a"] = state("a", "one", "two")
    disk.saved.changed({"a"})
    disk.later(INTERVAL_S - 1)
    await disk.saved.keep({"a": 0.0})
    restored = await disk.saved.load("a")
    assert restored is not None
    assert len(restored.state.services) == 1
    await disk.saved.write_due({"a": 0.0})
    assert await disk.saved.load("a") == RestoredTenant(disk.known["a"], 0.0)


async def test_unchanged_tenant_is_confirmed_without_a_write(disk: TenantFiles) -> None:
    disk.saved.changed({"a"})
    await disk.saved.keep({"a": 0.0})
    file = next(disk.directory.iterdir())
    inode = file.stat().st_ino
    disk.later(CONFIRM_S)
    await disk.saved.keep({"a": 5.0})
    assert (file.stat().st_ino, file.stat().st_mtime) == (inode, disk.wall - 5.0)
    file.unlink()
    disk.later(CONFIRM_S)
    await disk.saved.keep({"a": 0.0})
    await disk.saved.keep({"a": 0.0})
    assert file.exists()


async def test_old_state_is_ignored_and_removed(disk: TenantFiles) -> None:
    disk.saved.changed({"a"})
    await disk.saved.keep({"a": 0.0})
    disk.later(MAX_AGE_S + 1)
    assert await disk.saved.load("a") is None
    disk.started()
    assert list(disk.directory.iterdir()) == []


async def test_clock_set_back_makes_the_age_zero(disk: TenantFiles) -> None:
    disk.saved.changed({"a"})
    await disk.saved.keep({"a": 0.0})
    disk.wall -= 5000
    assert await disk.started().load("a") == RestoredTenant(disk.known["a"], 0.0)


@pytest.mark.parametrize("content", [b"", b"{}", b"[", b'{"tenant":1}', b"\xff", b"[" * 100_000])
async def test_damaged_file_is_ignored(disk: TenantFiles, content: bytes) -> None:
    (disk.directory / "a.json").write_bytes(content)
    os.utime(disk.directory / "a.json", (NOW, NOW))
    assert await disk.saved.load("a") is None


async def test_file_of_another_tenant_is_ignored(disk: TenantFiles) -> None:
    disk.saved.changed({"a"})
    await disk.saved.keep({"a": 0.0})
    (disk.directory / "a.json").rename(disk.directory / "b.json")
    assert await disk.saved.load("b") is None


async def test_malformed_cluster_key_gets_no_file(disk: TenantFiles) -> None:
    disk.saved.changed({"../a"})
    await disk.saved.write_due({"../a": 0.0})
    assert list(disk.directory.iterdir()) == []


async def test_full_disk_is_counted_and_retried(disk: TenantFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("daemonkit.files.saved_state.write_atomically", full)
        disk.saved.changed({"a"})
        await disk.saved.keep({"a": 0.0})
        disk.later(INTERVAL_S)
        await disk.saved.keep({"a": 0.0})
    assert disk.errors.value == 2
    disk.later(INTERVAL_S)
    await disk.saved.keep({"a": 0.0})
    assert await disk.saved.load("a") == RestoredTenant(disk.known["a"], 0.0)


async def test_too_large_tenant_is_not_written(disk: TenantFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubeproxy_ext.saved_state, "MAX_FILE_BYTES", 500)
    disk.saved = disk.started()
    disk.known["a"] = state("a", *(f"s{number}" for number in range(50)))
    disk.saved.changed({"a"})
    await disk.saved.keep({"a": 0.0})
    assert list(disk.directory.iterdir()) == []


async def test_oldest_confirmed_files_make_room(disk: TenantFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    for tenant in "bca":
        disk.known[tenant] = state(tenant, "one")
        disk.saved.changed({tenant})
        await disk.saved.keep({tenant: 0.0})
        disk.later(INTERVAL_S)
    size = sum(file.stat().st_size for file in disk.directory.iterdir())
    monkeypatch.setattr(kubeproxy_ext.saved_state, "MAX_TOTAL_BYTES", size)
    disk.saved = disk.started()
    disk.known["d"] = state("d", "one")
    disk.saved.changed({"d"})
    await disk.saved.keep({"d": 0.0})
    assert sorted(file.name for file in disk.directory.iterdir()) == ["a.json", "c.json", "d.json"]


async def test_state_of_version_1_is_read(disk: TenantFiles) -> None:
    disk.saved.changed({"a"})
    await disk.saved.keep({"a": 0.0})
    (path,) = disk.directory.iterdir()
    value = json.loads(path.read_text(encoding="utf-8"))
    (item,) = value["slices"]
    del item["packed"]
    item["endpoints"] = [{"addresses": ["10.0.0.1"]}]
    path.write_text(json.dumps(value | {"version": 1}), encoding="utf-8")
    os.utime(path, (disk.wall, disk.wall))
    restored = await disk.started().load("a")
    assert restored is not None
    assert restored.state.slices == state("a").slices


async def test_damaged_endpoints_are_found_when_loading(
    disk: TenantFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    disk.known["a"].slices = [PackedSlice(Meta(name="x"), packed=b"\xc1")]
    disk.saved.changed({"a"})
    await disk.saved.keep({"a": 0.0})
    assert await disk.started().load("a") is None
    assert "saved state cannot be read" in capsys.readouterr().err
