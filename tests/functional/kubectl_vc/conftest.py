# SPDX-License-Identifier: Apache-2.0
"""The plugin as krew installs it, one file, beside a fake kubectl, in an environment of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.functional.kubectl_vc import fake_kubectl

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Installed:
    """A PATH with the plugin and the fake alone. `answers` are those of the fake."""

    directory: Path
    environment: dict[str, str]

    def answer(self, *answers: dict[str, Any]) -> None:
        """Set what the fake prints."""
        (self.directory / "answers.json").write_text(json.dumps(answers))

    def calls(self) -> list[dict[str, Any]]:
        """What the fake was asked, in order."""
        path = self.directory / "answers.calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def start(self, *words: str, program: str = "kubectl-vc", **more: str) -> "subprocess.Popen[str]":
        """A call that goes on, with the signals of a person's shell: below nohup some are ignored."""
        return subprocess.Popen(
            ["/usr/bin/env", "--default-signal=HUP,INT", str(self.directory / "bin" / program), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self.environment, **more},
            cwd=self.directory,
        )

    def run(
        self, *words: str, program: str = "kubectl-vc", typed: str = "", **more: str
    ) -> tuple[int, str, str]:
        """Its code, stdout and stderr."""
        process = self.start(*words, program=program, **more)
        out, err = process.communicate(typed, timeout=60)
        return process.returncode, out, err


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What packaging/plugin.py builds."""
    target = tmp_path_factory.mktemp("plugin")
    subprocess.run([sys.executable, str(ROOT / "packaging/plugin.py"), str(target)], check=True)
    return target


@pytest.fixture
def installed(built: Path, tmp_path: Path) -> Iterator[Installed]:
    """No package of ours, or of others, can be imported: the interpreter is isolated."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (tmp_path / "scratch").mkdir()
    for name in ("kubectl-vc", "kubectl_complete-vc"):
        launcher = f'#!/bin/sh\nexec {sys.executable} -IS "{programs}/zip/{name}" "$@"\n'
        (programs / name).write_text(launcher)
        (programs / name).chmod(0o755)
        (programs / "zip").mkdir(exist_ok=True)
        (programs / "zip" / name).symlink_to(built / "kubectl-vc")
    kubectl = programs / "kubectl"
    kubectl.write_text(f'#!/bin/sh\nexec {sys.executable} -ISB "{fake_kubectl.__file__}" "$@"\n')
    kubectl.chmod(0o755)
    environment = {
        "PATH": f"{programs}{os.pathsep}/usr/bin:/bin",
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "scratch"),
        "TZ": "UTC",
        fake_kubectl.ANSWERS: str(tmp_path / "answers.json"),
    }
    made = Installed(tmp_path, environment)
    made.answer()
    yield made
    assert list((tmp_path / "scratch").iterdir()) == []
