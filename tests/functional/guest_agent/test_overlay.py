# SPDX-License-Identifier: Apache-2.0
"""The overlay of packaging/guest runs without this checkout."""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
OVERLAY = ROOT / "packaging" / "guest" / "overlay.sh"
# The limit of the overlay's size.
MAX_BYTES = 1 << 20
_OURS = ("bridge_api", "daemonkit", "guest_agent", "ruleset")


def test_the_agent_runs_from_an_overlay(tmp_path: Path) -> None:
    for _ in range(2):  # a second time over the first
        subprocess.run(["sh", str(OVERLAY), str(tmp_path)], timeout=120, check=True)
    launcher = tmp_path / "usr/bin/vcnode-guest-agent"
    installed = tmp_path / "usr/lib/vcnode-guest/site-packages"
    script = launcher.read_text().replace("/usr/lib/vcnode-guest/site-packages", str(installed))
    done = subprocess.run(
        [sys.executable, "-ISEB", "-c", script, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=tmp_path,
    )
    assert "--credentials DIRECTORY" in done.stdout
    assert launcher.stat().st_mode & 0o111
    # Whatever any module imports, also within a function, is in the overlay or in the standard library.
    imported = f"import sys; sys.path[:0] = [{str(installed)!r}]\n" + "\n".join(_imports(installed))
    subprocess.run([sys.executable, "-ISEB", "-c", imported], timeout=60, check=True, cwd=tmp_path)
    unit = tmp_path / "usr/lib/systemd/system/kata-containers.target.wants/vcnode-guest-agent.service"
    assert "ExecStart=/usr/bin/vcnode-guest-agent" in unit.read_text()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if path.name == "service.py" or path.suffix == ".proto"]
    assert sum(path.stat().st_size for path in files) < MAX_BYTES


def _imports(installed: Path) -> list[str]:
    """The import statements of our own modules in all files, without what only type checkers read."""
    found: dict[str, None] = {}
    for path in installed.rglob("*.py"):
        tree = ast.parse(path.read_text())
        typed = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and id(node) not in typed and not node.level:
                found[f"import {node.module}"] = None
    return [each for each in found if each.split()[1].partition(".")[0] in _OURS]


def test_a_missing_argument_prints_the_usage() -> None:
    done = subprocess.run(["sh", str(OVERLAY)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "overlay.sh ROOT\n" in done.stderr
