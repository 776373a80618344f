# SPDX-License-Identifier: Apache-2.0
"""The mechanics; what each daemon saves is tested with the daemon."""

import os
from pathlib import Path

import pytest

from daemonkit.files.saved_state import MAX_AGE_S, Loaded, SavedFiles
from daemonkit.metrics import Counter

pytestmark = pytest.mark.asyncio

NOW = 1_800_000_000.0
NAME = "state.json"


class SavedDisk:
    """A directory, a clock and a counter of failures."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "state" / NAME
        self.now = NOW
        self.errors = Counter()
        self.files = SavedFiles(
            self.path.parent,
            self.errors,
            max_file_bytes=8,
            max_total_bytes=16,
            max_ahead_s=300.0,
            wall=lambda: self.now,
        )
        self.files.prepare()

    def load(self) -> Loaded[bytes] | None:
        return self.files.load(NAME, bytes, lambda data: data != b"other")


@pytest.fixture
def disk(tmp_path: Path) -> SavedDisk:
    return SavedDisk(tmp_path)


async def test_content_is_as_old_as_its_confirmation(disk: SavedDisk) -> None:
    assert await disk.files.write(NAME, b"known", NOW - 5.0)
    assert disk.load() == Loaded(b"known", 5.0)
    assert await disk.files.confirm(NAME, NOW)
    assert disk.load() == Loaded(b"known", 0.0)
    assert disk.path.parent.stat().st_mode & 0o777 == 0o700
    assert [each.stat().st_mode & 0o777 for each in disk.path.parent.iterdir()] == [0o600]


async def test_leftovers_of_a_killed_writer_are_removed(disk: SavedDisk) -> None:
    await disk.files.write(NAME, b"known", NOW)
    (disk.path.parent / f".{NAME}.0123.tmp").write_bytes(b"half")
    disk.files.prepare()
    assert list(disk.path.parent.iterdir()) == [disk.path]


async def test_a_time_in_the_content_counts_instead(disk: SavedDisk) -> None:
    await disk.files.write(NAME, b"30", NOW)
    assert disk.files.load(NAME, int, lambda _: True, lambda value: NOW - value) == Loaded(30, 30.0)


@pytest.mark.parametrize(
    ("data", "age_s", "reason"),
    [
        (b"known", MAX_AGE_S + 1, "confirmed 86401 s ago, at most 86400 s are used"),
        (b"known", -301.0, "confirmed 301 s in the future, check the clock"),
        (b"other", 0.0, "another version or owner"),
    ],
    ids=["too-old", "too-far-ahead", "foreign"],
)
async def test_unusable_content_is_logged_with_its_reason(
    disk: SavedDisk, capsys: pytest.CaptureFixture[str], data: bytes, age_s: float, reason: str
) -> None:
    await disk.files.write(NAME, data, NOW - age_s)
    assert disk.load() is None
    assert f'"saved state is not used, starting without it" file={disk.path} reason="{reason}"' in (
        capsys.readouterr().err
    )


async def test_missing_damaged_and_large_content_is_not_used(disk: SavedDisk) -> None:
    assert disk.load() is None
    disk.path.write_bytes(b"more than 8")
    os.utime(disk.path, (NOW, NOW))
    assert disk.load() is None
    disk.path.write_bytes(b"no int")
    assert disk.files.load(NAME, int, lambda _: True) is None


async def test_content_too_large_is_a_counted_failure(disk: SavedDisk) -> None:
    assert not await disk.files.write(NAME, b"more than 8")
    assert (disk.errors.value, disk.path.exists()) == (1, False)


async def test_a_missing_file_is_not_confirmed_and_no_failure(disk: SavedDisk) -> None:
    assert not await disk.files.confirm(NAME, NOW)
    assert disk.errors.value == 0


async def test_the_oldest_files_make_room_and_old_ones_go(disk: SavedDisk) -> None:
    for at, name in enumerate(("b.json", "a.json", "c.json")):
        await disk.files.write(name, b"6bytes", NOW + at)
    assert sorted(path.name for path in disk.path.parent.iterdir()) == ["a.json", "c.json"]
    disk.now = NOW + 1.5 + MAX_AGE_S
    disk.files.remove_old()
    assert [path.name for path in disk.path.parent.iterdir()] == ["c.json"]


async def test_files_that_are_not_saved_state_stay(disk: SavedDisk) -> None:
    others = [
        disk.path.parent / name for name in ("kubeconfig.yaml", "client.key", "d", "d.json", "link.json")
    ]
    for path in others[:2]:
        path.write_bytes(b"much more than the limit")
    for path in others[2:4]:
        path.mkdir()
    others[4].symlink_to(others[0])
    disk.now = NOW + 2 * MAX_AGE_S
    await disk.files.write("b.json", b"6bytes", disk.now)
    disk.files.remove_old()
    assert sorted(disk.path.parent.iterdir()) == sorted([*others, disk.path.with_name("b.json")])
    assert disk.errors.value == 0
