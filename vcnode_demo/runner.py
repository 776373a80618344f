# SPDX-License-Identifier: Apache-2.0
"""Runs the scenarios in order in one environment, and leaves nothing behind."""

import itertools
import signal
import time
from types import FrameType

from daemonkit import logs
from vcnode.terminal import Terminal, ToolError
from vcnode_demo import cheatsheet
from vcnode_demo.environment import Environment
from vcnode_demo.narrator import CheckFailedError, Narrator
from vcnode_demo.scenarios import dns, operator, outage, services, syncer, vnagent
from vcnode_demo.tenant_client import RefusedError

SCENARIOS = (vnagent.run, outage.run, services.run, dns.run, syncer.run, operator.run)
EXIT_CHECK_FAILED = 1
# And the signal's number, as a shell reports it.
EXIT_SIGNALED = 128
END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
# Interval of the log lines of acme's shop, with `--keep`.
_LOG_EVERY_S = 2.0


def run(terminal: Terminal, *, is_keeping: bool) -> int:
    """Run all scenarios; exit code 1 if a check fails. Raises ToolError without an environment."""
    began_s = time.monotonic()
    narrator = Narrator(terminal)
    environment: Environment | None = None
    previous = {number: signal.signal(number, _end) for number in END_SIGNALS}
    # A shell starts background jobs with SIGINT ignored, but it must end the demo.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        logs.setup(level="warning")  # of the fakes, which run in this process
        terminal.line("vcnode demo: tenants that do not trust each other share a node")
        environment = Environment()
        with environment:
            terminal.lines(cheatsheet.overview(environment))
            for scenario in SCENARIOS:
                scenario(narrator, environment)
            took_s = time.monotonic() - began_s
            terminal.line()
            terminal.line(
                f"All checks passed: {narrator.steps} steps, {narrator.checks} checks, {took_s:.1f} s."
            )
            if is_keeping:
                _keep(terminal, environment)
    except BrokenPipeError:
        raise  # the reader of the output has gone
    except (CheckFailedError, RefusedError, ToolError, OSError) as error:
        terminal.warn(f"CHECK FAILED in step {narrator.steps}: {error}")
        for line in environment.last_log_lines if environment is not None else []:
            terminal.warn(line)
        return EXIT_CHECK_FAILED
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 0


def _keep(terminal: Terminal, environment: Environment) -> None:
    """Print the cheat sheet and wait for Ctrl-C."""
    terminal.lines(cheatsheet.commands(environment))
    terminal.out.flush()
    pod = environment.pods["acme web/shop"]
    try:
        for number in itertools.count(1):
            time.sleep(_LOG_EVERY_S)
            environment.kubelet.append_log(pod.namespace, pod.name, "app", f"acme's shop sold anvil {number}")
    except KeyboardInterrupt:
        terminal.line()
        terminal.line("Taken down.")


def _end(number: int, _: FrameType | None) -> None:
    """Unwind on SIGTERM and SIGHUP as on Ctrl-C, so that processes end and files are removed."""
    raise SystemExit(EXIT_SIGNALED + number)
