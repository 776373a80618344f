# SPDX-License-Identifier: Apache-2.0
"""The tool beside the real daemons of a node."""

import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.vcnode.running_node import STARTED, daemons
from tests.functional.vcnode.sick_node import ROOT, SickNode

PASSWORD = "hunter2"


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SickNode]:
    node = SickNode(tmp_path_factory.mktemp("n"))
    node.start(with_daemons=False)
    yield node
    node.stop()


def vcnode(node: SickNode, *words: str) -> subprocess.CompletedProcess[str]:
    sockets = [str(node.directory / "run" / f"{name}.sock") for name in STARTED]
    return subprocess.run(
        [sys.executable, "-m", "vcnode", *words, "--socket", *sockets],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_real_daemons_that_are_well_have_no_finding(node: SickNode) -> None:
    with daemons(node) as processes:
        ca = node.files.serving.write(node.directory, "ca")
        assert node.doctor("--serving-ca", str(ca)) == (0, [], "")
        processes["kata-bridge"].kill()
        processes["kata-bridge"].wait()
        code, found, _ = node.doctor()
        assert (code, ("failed", "daemon") in {each[:2] for each in found}) == (1, True), found


def test_top_and_bugreport_of_real_daemons(node: SickNode, tmp_path: Path) -> None:
    config = node.files.config("kata-bridge")
    with daemons(node):
        done = vcnode(node, "top", "--interval", "0.2", "-o", "json")
        assert (done.returncode, done.stderr) == (0, "")
        found = json.loads(done.stdout)
        assert {each["daemon"] for each in found["daemons"]} == set(STARTED)
        assert all(each["residentBytes"] > 10_000_000 for each in found["daemons"])
        assert all(each["cpuCores"] is not None and each["openFiles"] for each in found["daemons"])

        config.write_text(f"{config.read_text()}# password: {PASSWORD}\n")
        archive = tmp_path / "report.tar.gz"
        done = vcnode(
            node, "bugreport", "--file", str(archive), "--config-directory", str(node.files.directory)
        )
    texts = unpacked(archive)
    manifest = json.loads(texts["report/manifest.json"])
    assert archive.stat().st_mode & 0o777 == 0o600
    assert (done.returncode, bool(manifest["problems"])) in {(0, False), (1, True)}, done.stderr
    pages = [name for name in texts if name.startswith("report/daemons/")]
    assert sum(name.endswith("/metrics") for name in pages) == len(STARTED), pages
    assert "report/configuration/vn-agent.yaml" in texts
    assert json.loads(texts["report/node/doctor.json"])["items"] is not None
    whole = "\n".join(texts.values())
    assert ("ten-a" in whole, PASSWORD in whole, "-----BEGIN" in whole) == (False, False, False)
    assert "tenant-1" in whole
    assert manifest["removedValues"] >= 1


def test_an_archive_is_never_overwritten(node: SickNode, tmp_path: Path) -> None:
    archive = tmp_path / "report.tar.gz"
    archive.write_text("kept")
    done = vcnode(node, "bugreport", "--file", str(archive))
    assert (done.returncode, done.stderr) == (3, f"vcnode: {archive}: File exists\n")
    assert archive.read_text() == "kept"


def unpacked(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as packed:
        found = {entry.name: packed.extractfile(entry) for entry in packed.getmembers()}
        return {name: file.read().decode() for name, file in found.items() if file is not None}
