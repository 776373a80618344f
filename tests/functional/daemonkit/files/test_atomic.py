# SPDX-License-Identifier: Apache-2.0
"""Replacing a file on a disk that is really full, and by a process that is really killed."""

import subprocess
import sys
from pathlib import Path

import pytest

from daemonkit.files.atomic import remove_leftovers, write_atomically
from daemonkit.files.watched import Watched

FILL = """
import pathlib, sys
from daemonkit.files.atomic import write_atomically
path = pathlib.Path(sys.argv[1]) / "state.json"
write_atomically(path, b"old" * 1000)
try:
    write_atomically(path, b"new" * 1000000)
except OSError as error:
    print(error.strerror)
print(path.read_bytes() == b"old" * 1000, [each.name for each in path.parent.iterdir()])
"""

REWRITE = """
import pathlib, sys
from daemonkit.files.atomic import write_atomically
path = pathlib.Path(sys.argv[1]) / "state.json"
print("started", flush=True)
while True:
    for byte in b"abcdefgh":
        write_atomically(path, bytes([byte]) * 1_000_000)
"""


def test_a_full_disk_keeps_the_old_file(tmp_path: Path) -> None:
    mount = 'mount -t tmpfs -o size=256k none "$1" && exec "$2" -c "$3" "$1"'
    enter = ["unshare", "--user", "--map-root-user", "--mount"]
    probe = subprocess.run(
        [*enter, "sh", "-c", 'mount -t tmpfs none "$1"', "-", tmp_path], check=False, capture_output=True
    )
    if probe.returncode != 0:
        pytest.skip("no user namespaces here, so no small file system to fill")
    result = subprocess.run(
        [*enter, "sh", "-c", mount, "-", tmp_path, sys.executable, FILL],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert result.stdout == "No space left on device\nTrue ['state.json']\n"


def test_a_killed_writer_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_atomically(path, b"a" * 1_000_000)
    watched = Watched.files([path])
    for _ in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", REWRITE, str(tmp_path)], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            for _ in range(20):
                content = watched.snapshot()[path]
                assert len(content) == 1_000_000
                assert len(set(content)) == 1
            process.kill()
        content = path.read_bytes()
        assert len(content) == 1_000_000
        assert len(set(content)) == 1
        remove_leftovers(tmp_path)
        assert [each.name for each in tmp_path.iterdir()] == ["state.json"]
