# SPDX-License-Identifier: Apache-2.0
"""`pip install vcnode` without extras: a program says which one it needs."""

import subprocess
import sys
import tomllib

import pytest

from tests.packages import ROOT

PROGRAMS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]


def start(program: str, *without: str) -> subprocess.CompletedProcess[str]:
    """Start a program with `--version`, as if these modules were not installed."""
    module, _, name = PROGRAMS[program].partition(":")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({without!r})); sys.argv = [{program!r}, '--version'];"
        f" from {module} import {name}; sys.exit({name}())"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.functional
@pytest.mark.parametrize(
    ("program", "module", "extra"),
    [
        ("kubeproxy-ext", "grpc", "services"),
        ("dnsconfig", "grpc", "services"),
        ("kata-bridge", "grpc", "services"),
        ("dnsconfig-webhook", "aiohttp", "webhook"),
    ],
)
def test_a_missing_extra_is_named(program: str, module: str, extra: str) -> None:
    done = start(program, module)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{program} needs the module {module}: pip install 'vcnode[{extra}]'\n"


@pytest.mark.functional
@pytest.mark.parametrize("program", ["vc-syncer", "vn-agent"])
def test_others_need_no_extra(program: str) -> None:
    done = start(program, "grpc", "cryptography", "aiohttp", "jwt", "dns", "psutil")
    assert (done.returncode, done.stderr) == (0, "")
