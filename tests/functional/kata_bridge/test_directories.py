# SPDX-License-Identifier: Apache-2.0
"""Who may write where root opens files: checked by --check-config and at the start."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from daemonkit.files import directories
from daemonkit.files.directories import UnusableDirectoryError
from devkit.kube.apiserver import FakeApiserver
from devkit.pki import Authority
from tests.functional.kata_bridge.test_life import ROOT, bridge_command, is_ready, written
from tests.waiting import wait_until

_S = 30


def ended(command: list[str]) -> tuple[int, str]:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_S, check=False)
    return done.returncode, done.stderr


def test_missing_directories_are_made_on_a_fresh_node(short_dir: Path) -> None:
    """With the documented configuration --check-config passed, and the start missed the lock's directory."""
    vcnode = short_dir / "run" / "vcnode"
    settings = {
        "lockFile": str(vcnode / "kata-bridge.lock"),
        "listen": {"socket": str(vcnode / "kata-bridge.sock")},
        "status": {"socket": str(vcnode / "status.sock")},
        "stateDirectory": str(short_dir / "var" / "lib" / "vcnode" / "kata-bridge"),
    }
    config = written(short_dir, **settings)
    (short_dir / "guests").mkdir()
    assert ended(bridge_command(config, "--check-config")) == (0, f"{config}: ok\n")
    assert not vcnode.exists()
    process = subprocess.Popen(bridge_command(config), cwd=ROOT, stderr=subprocess.DEVNULL, umask=0o077)
    try:
        wait_until(lambda: (vcnode / "status.sock").exists() and is_ready(vcnode))
        assert stat.S_IMODE(vcnode.stat().st_mode) == 0o755
        assert stat.S_IMODE((short_dir / "var/lib/vcnode/kata-bridge").stat().st_mode) == 0o700
    finally:
        process.kill()
        process.wait()


PLACES: dict[str, dict[str, Any]] = {
    "stateDirectory": {"stateDirectory": "{0}/open"},
    "above stateDirectory": {"stateDirectory": "{0}/open/state"},
    "lockFile": {"lockFile": "{0}/open/lock"},
    "listen.socket": {"listen": {"socket": "{0}/open/bridge.sock"}},
    "agent.socket": {"agent": {"socket": "{0}/open/agents.sock"}},
    "status.socket": {"status": {"socket": "{0}/open/status.sock"}},
    "gate.directory": {"gate": {"directory": "{0}/open/pods"}, "sandboxes": {"nri": {"socket": "{0}/nri"}}},
}


@pytest.mark.parametrize("name", PLACES)
def test_a_directory_that_others_may_write_refuses_the_start(short_dir: Path, name: str) -> None:
    """A member of the bridge's group put a link there, and root wrote to its target."""
    filled = yaml.safe_load(yaml.safe_dump(PLACES[name]).replace("{0}", str(short_dir)))
    config = written(short_dir, **filled)
    (short_dir / "guests").mkdir()
    (short_dir / "open").mkdir()
    (short_dir / "open").chmod(0o770)
    opened = short_dir / "open"
    message = f"{opened}: users other than its owner can write to it (mode 0770); chmod go-w {opened}"
    code, checked = ended(bridge_command(config, "--check-config"))
    assert (code, message in checked) == (2, True), checked
    code, log = ended(bridge_command(config))
    assert (code, message in log, "Traceback" in log) == (1, True, False), log
    assert list((short_dir / "open").iterdir()) == []


def test_a_directory_of_another_user_refuses_the_start(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (short_dir / "theirs").mkdir()
    if os.geteuid() == 0:
        os.chown(short_dir / "theirs", 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    for path in (short_dir / "theirs", short_dir / "theirs" / "state"):
        with pytest.raises(UnusableDirectoryError, match=r"it belongs to uid .*, not to root"):
            directories.prepare(path)


@pytest.mark.parametrize("module", ["dnsconfig", "kubeproxy_ext"])
def test_a_directory_that_cannot_be_made_is_one_error_line(short_dir: Path, module: str) -> None:
    """It was a traceback, after --check-config had passed."""
    authority = Authority.create("super-cluster")
    apiserver = FakeApiserver(authority=authority, client_ca_pem=authority.cert_pem)
    kubeconfig = short_dir / "kubeconfig"
    kubeconfig.write_text(apiserver.kubeconfig(authority.issue("node", usages=["client"])))
    (short_dir / "run").touch()
    kind = {"dnsconfig": "DnsConfigConfiguration", "kubeproxy_ext": "KubeproxyExtConfiguration"}[module]
    config = short_dir / "config.yaml"
    document = {
        "apiVersion": "vcnode.io/v1alpha1",
        "kind": kind,
        "nodeName": "node-1",
        "superCluster": {"kubeconfigFile": str(kubeconfig)},
        "status": {"socket": str(short_dir / "run" / "status.sock")},
    }
    config.write_text(yaml.safe_dump(document))
    message = f"{short_dir}/run: not a directory"
    command = [sys.executable, "-m", module, "--config", str(config)]
    code, checked = ended([*command, "--check-config"])
    assert (code, message in checked) == (2, True), checked
    code, log = ended(command)
    assert (code, message in log, "Traceback" in log) == (1, True, False), log
