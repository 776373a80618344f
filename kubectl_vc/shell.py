# SPDX-License-Identifier: Apache-2.0
"""`kubectl vc shell`: a shell of the person's own, whose kubectl asks the tenant."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from kubectl_vc.access import saved_kubeconfig
from kubectl_vc.core.faults import PluginError
from kubectl_vc.core.prompts import ShellStart, shell_start
from kubectl_vc.files import write_private
from kubectl_vc.invocation import Invocation

# A shell reports so that a signal ended a program.
EXIT_SIGNALED = 128
_DEFAULT_SHELL = "/bin/sh"
# These a terminal sends to its whole foreground group: the shell decides for both. Others come to us alone.
_TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGQUIT)
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP)


def shell(invocation: Invocation) -> int:
    """Run it, and remove the kubeconfig at its end. Returns the shell's exit code."""
    view = invocation.virtual_cluster()
    program = invocation.environment.get("SHELL", "") or _DEFAULT_SHELL
    with saved_kubeconfig(invocation, view) as path:
        start = shell_start(program, os.path.dirname(path), view.path, invocation.environment)  # noqa: PTH120 - pathlib loads slowly
        for file, content in start.files.items():
            write_private(file, content)
        invocation.note(f"kubectl asks VirtualCluster {view.path} here; exit leads back")
        return _run(start, {**invocation.environment, **start.environment, "KUBECONFIG": path})


def _run(start: ShellStart, environment: dict[str, str]) -> int:
    with _signals_kept() as received:
        try:
            process = subprocess.Popen(start.words, env=environment)  # noqa: S603 - the person's own shell
        except OSError as error:
            raise PluginError(
                f"cannot start {start.words[0]}: {error.strerror}; set SHELL to another"
            ) from None
        received.append(process)
        code = process.wait()
    return EXIT_SIGNALED - code if code < 0 else code


@contextmanager
def _signals_kept() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Until the shell has ended, no signal ends us: its kubeconfig is removed after it."""
    processes: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        for each in processes:
            each.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    # A handler, and not SIG_IGN, which the shell would inherit.
    before |= {number: signal.signal(number, lambda *_: None) for number in _TERMINAL_SIGNALS}
    try:
        yield processes
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
