# SPDX-License-Identifier: Apache-2.0
"""Checks the configurations of all daemons on this node, each as its daemon's user.

The checks are the daemons' own (`start_check`), in a process each: root may read what a daemon may not.
"""

import argparse
import json
import os
import pwd
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemonkit.config.binding import ConfigError
from daemonkit.run.start_check import FileProblem, Severity, directories_problems, unique
from vcnode.core.doctor_facts import ConfigFile, NamedFile

_DIRECTORY = Path("/etc/vcnode")
# Loaders parse a few files; tenants' directories may have thousands.
TIMEOUT_S = 10.0
MAX_RESULT_BYTES = 4 << 20


def add_directory(parser: argparse.ArgumentParser) -> None:
    """Add `--config-directory`."""
    parser.add_argument(
        "--config-directory",
        type=Path,
        default=_DIRECTORY,
        metavar="DIR",
        help="of the daemons' configurations (default: %(default)s)",
    )


LoadConfig = Callable[[Path], Any]
ExamineFiles = Callable[[Any, float], Iterable[FileProblem]]


# Each imports its daemon only when called: a node has not all of them installed.
def _vn_agent() -> tuple[LoadConfig, ExamineFiles]:
    from vnagent import config, start_check

    return config.load, start_check.start_problems


def _kata_bridge() -> tuple[LoadConfig, ExamineFiles]:
    from kata_bridge import config, start_check

    return config.load, start_check.start_problems


def _kubeproxy_ext() -> tuple[LoadConfig, ExamineFiles]:
    from kubeproxy_ext import config, start_check

    return config.load, start_check.start_problems


def _dnsconfig() -> tuple[LoadConfig, ExamineFiles]:
    from dnsconfig import config, start_check

    return config.load, start_check.start_problems


def _dns_webhook() -> tuple[LoadConfig, ExamineFiles]:
    from dns_webhook import config, start_check

    return config.load, start_check.start_problems


def _syncer() -> tuple[LoadConfig, ExamineFiles]:
    from syncer import config
    from syncer.run import start_check

    return config.load, start_check.start_problems


def _operator() -> tuple[LoadConfig, ExamineFiles]:
    from tenant_operator import config
    from tenant_operator.run import start_check

    return config.load, start_check.start_problems


@dataclass(frozen=True, slots=True)
class InstalledDaemon:
    """A daemon that may be installed; `user` is empty for root, and for one that runs in a pod.

    `parts` returns what loads its configuration and what examines the files that it names.
    """

    name: str
    package: str
    parts: Callable[[], tuple[LoadConfig, ExamineFiles]]
    user: str = ""

    def load(self, path: Path) -> Any:
        """Its configuration. Raises ConfigError, and ModuleNotFoundError where it is not installed."""
        return self.parts()[0](path)


DAEMONS = (
    InstalledDaemon("vn-agent", "vnagent", _vn_agent, "vn-agent"),
    InstalledDaemon("kata-bridge", "kata_bridge", _kata_bridge),
    InstalledDaemon("kubeproxy-ext", "kubeproxy_ext", _kubeproxy_ext, "kubeproxy-ext"),
    InstalledDaemon("dnsconfig", "dnsconfig", _dnsconfig, "dnsconfig"),
    InstalledDaemon("dnsconfig-webhook", "dns_webhook", _dns_webhook),
    InstalledDaemon("vc-syncer", "syncer", _syncer, "vc-syncer"),
    InstalledDaemon("vc-operator", "tenant_operator", _operator, "vc-operator"),
)


@dataclass(frozen=True, slots=True)
class ConfigChecks:
    """`late` are daemons whose check did not end."""

    configs: tuple[ConfigFile, ...]
    files: tuple[NamedFile, ...]
    late: tuple[str, ...]


def installed(directory: Path) -> dict[InstalledDaemon, Path]:
    """The daemons that have a configuration, and its path."""
    found = {daemon: directory / f"{daemon.name}.yaml" for daemon in DAEMONS}
    return {daemon: path for daemon, path in found.items() if path.exists()}


def check_all(daemons: Mapping[InstalledDaemon, Path], now_s: float) -> ConfigChecks:
    """Check all at once. Call it before any thread is started, as it forks."""
    children = {daemon: _Child(daemon, path, now_s) for daemon, path in daemons.items()}
    deadline = time.monotonic() + TIMEOUT_S
    configs: list[ConfigFile] = []
    files: list[NamedFile] = []
    late: list[str] = []
    for daemon, child in children.items():
        result = child.result(deadline)
        if result is None:
            late.append(f"check of {daemon.name}'s configuration")
            continue
        configs.append(ConfigFile(daemon.name, str(daemons[daemon]), tuple(result["errors"])))
        files += (NamedFile(daemon.name, *each) for each in result["files"])
    return ConfigChecks(tuple(configs), tuple(files), tuple(late))


class _Child:
    """A process that checks one configuration and writes the result into a pipe."""

    def __init__(self, daemon: InstalledDaemon, path: Path, now_s: float) -> None:
        self._reader, writer = os.pipe()
        self._pid = os.fork()
        if self._pid:
            os.close(writer)
            return
        code = 1
        try:
            os.close(self._reader)
            _switch_user(daemon.user)
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(json.dumps(_checked(daemon, path, now_s)).encode())
            code = 0
        finally:
            # Never the parent's handlers and buffers.
            os._exit(code)

    def result(self, deadline: float) -> dict[str, Any] | None:
        """What it wrote; None if it did not end in time or failed."""
        data = bytearray()
        try:
            while len(data) <= MAX_RESULT_BYTES:
                left_s = max(0.0, deadline - time.monotonic())
                if not select.select([self._reader], [], [], left_s)[0]:
                    return None
                part = os.read(self._reader, 1 << 16)
                if not part:
                    break
                data += part
            value: dict[str, Any] = json.loads(data)
        except ValueError:
            return None
        finally:
            os.close(self._reader)
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        return value


def _checked(daemon: InstalledDaemon, path: Path, now_s: float) -> dict[str, Any]:
    try:
        load, examine = daemon.parts()
        config = load(path)
        problems = list(examine(config, now_s))
    except ConfigError as error:
        return {"errors": list(error.errors), "files": []}
    except ModuleNotFoundError:
        return {"errors": [f"{daemon.name} is not installed here; remove the file"], "files": []}
    known = {each.key for each in problems}
    problems += (each for each in directories_problems(config) if each.key not in known)
    return {"errors": [], "files": list(_rows(unique(problems)))}


def _rows(problems: Iterable[FileProblem]) -> Iterator[tuple[str, str, str, str, bool]]:
    for each in problems:
        yield each.key, str(each.path), each.message, each.remedy, each.severity is Severity.WARNING


def _switch_user(name: str) -> None:
    """Become the daemon's user, where we may and it exists; else check as the caller."""
    if os.geteuid() != 0 or not name:
        return
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        return
    os.initgroups(name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
