# SPDX-License-Identifier: Apache-2.0
"""The agent runs from copies of its packages, without anything else installed."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

# What packaging/guest/overlay.sh copies into a guest image.
PACKAGES = ("daemonkit", "bridge_api", "guest_agent", "ruleset")
OURS = {
    "daemonkit",
    "daemonkit.http2",
    "daemonkit.logs",
    "daemonkit.protobuf",
    "daemonkit.version",
    "bridge_api",
    "bridge_api.methods",
    "bridge_api.messages",
    "bridge_api.rulesets",
    "guest_agent",
    "ruleset",
}
NOT_IN_A_GUEST = {"grpc", "aiohttp", "msgspec", "yaml", "cryptography", "pyroute2", "google"}

_PRINT_MODULES = """
import json, sys
sys.path.insert(0, sys.argv[1])
sys.argv[1:] = ["--help"]
import guest_agent.__main__
print(json.dumps(sorted(sys.modules)))
"""


def test_the_agent_imports_the_standard_library_only(tmp_path: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _PRINT_MODULES, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    modules = set(json.loads(done.stdout))
    roots = {name.partition(".")[0] for name in modules}
    assert not roots & NOT_IN_A_GUEST
    ours = {name for name in modules if name.partition(".")[0] in PACKAGES}
    beyond = {name for name in ours - OURS if not name.startswith(("guest_agent.", "ruleset."))}
    assert beyond == set()
    assert roots - sys.stdlib_module_names - set(PACKAGES) == {"__main__"}


_WITHOUT_RANDOMNESS = """
import os, sys

def getrandom(size, flags=0):
    if flags & os.GRND_NONBLOCK:
        raise BlockingIOError(11, "Resource temporarily unavailable")
    os._exit(7)  # the agent waits here

os.getrandom = getrandom
from guest_agent.__main__ import main
main(["--state", sys.argv[1]])
"""


def test_waiting_for_the_random_pool_is_logged_first(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_RANDOMNESS, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 7
    assert "virtio-rng" in done.stderr
