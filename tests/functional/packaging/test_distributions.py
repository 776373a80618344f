# SPDX-License-Identifier: Apache-2.0
"""The wheel and the sdist, built from what git has: complete, typed, with their licences."""

import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from daemonkit.version import VERSION
from tests.packages import PACKAGES, ROOT

# Neither the demo nor the fakes are installed.
SHIPPED = tuple(name for name in PACKAGES if name not in ("devkit", "vcnode_demo"))
BUILD = "from setuptools import build_meta as b; b.build_sdist('out'); b.build_wheel('out')"
EPOCH = "1790000000"
# Each line of NOTICE about a library.
BUNDLED = re.compile(r"^  ([a-z0-9-]+) {2,}\S", re.MULTILINE)
LOCKED = re.compile(r"^([a-z0-9.-]+)==", re.MULTILINE)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with both, made from a copy of the files that git tracks or would."""
    source = tmp_path_factory.mktemp("source")
    words = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(words, check=True, capture_output=True).stdout
    packed = subprocess.run(
        ["tar", "--create", "--directory", str(ROOT), "--null", "--files-from=-", "--ignore-failed-read"],
        input=names,
        check=True,
        capture_output=True,
    ).stdout
    subprocess.run(["tar", "--extract", "--directory", str(source)], input=packed, check=True)
    subprocess.run(
        [sys.executable, "-c", BUILD],
        cwd=source,
        check=True,
        capture_output=True,
        env={"SOURCE_DATE_EPOCH": EPOCH, "PATH": "/usr/bin:/bin"},
    )
    return source / "out"


def test_the_wheel_has_all_that_its_packages_have(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {
        str(path.relative_to(ROOT))
        for package in SHIPPED
        for pattern in ("*.py", "*.proto", "py.typed")
        for path in (ROOT / package).rglob(pattern)
    }
    assert expected <= names
    assert {f"{package}/py.typed" for package in SHIPPED} <= expected
    assert {"bridge_api/bridge.proto", "guest_agent/api/guest.proto"} <= expected
    others = {name.split("/")[0] for name in names} - set(SHIPPED) - {f"vcnode-{VERSION}.dist-info"}
    assert others == set()


def test_the_wheel_says_what_it_is(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    archive = zipfile.ZipFile(wheel)
    notes = f"vcnode-{VERSION}.dist-info"
    headers = HeaderParser().parsestr(archive.read(f"{notes}/METADATA").decode())
    assert headers["License-Expression"] == "Apache-2.0"
    assert set(headers.get_all("License-File", [])) == {"LICENSE", "NOTICE"}
    assert headers.get_all("Project-URL", [])
    assert "Typing :: Typed" in headers.get_all("Classifier", [])
    unbounded = [
        each for each in headers.get_all("Requires-Dist", []) if not re.search(r"<|==|\[|types-", each)
    ]
    assert unbounded == []
    assert archive.read(f"{notes}/licenses/NOTICE") == (ROOT / "NOTICE").read_bytes()


def test_an_installed_wheel_runs(built: Path, tmp_path: Path) -> None:
    """Without dependencies: `--version` needs none."""
    (wheel,) = built.glob("*.whl")
    target = tmp_path / "tree"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, "--target", str(target), str(wheel)], check=True)
    start = f"import sys; sys.path.insert(0, {str(target)!r}); sys.argv = ['vn-agent', '--version']"
    words = [sys.executable, "-I", "-c", f"{start}; from vnagent.__main__ import main; main()"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.strip() == f"vn-agent {VERSION}", done.stderr


def test_the_sdist_has_tests_and_what_builds_packages(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        links = {entry.name.partition("/")[2] for entry in archive if entry.issym()}
    words = ["git", "-C", str(ROOT), "ls-files"]
    tracked = set(subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines())
    assert {name for name in tracked if (ROOT / name).exists()} - names == set()
    # The files of the Helm chart are links to folders, the rights of vc-syncer links to files.
    assert links == {name for name in tracked if (ROOT / name).is_symlink()} != set()


def test_notice_names_each_library_that_is_bundled() -> None:
    locks = (ROOT / "packaging/requirements").glob("*.txt")
    locked = {name for path in locks for name in LOCKED.findall(path.read_text())}
    assert set(BUNDLED.findall((ROOT / "NOTICE").read_text())) == locked
