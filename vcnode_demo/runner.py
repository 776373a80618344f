# SPDX-License-Identifier: Apache-2.0
"""Runs the acts of the demo in order on one stage, and sees to it that nothing is left behind."""

import itertools
import signal
import time
from types import FrameType

from vcnode.terminal import Terminal, ToolError
from vcnode_demo import cheatsheet
from vcnode_demo.caller import RefusedError
from vcnode_demo.environment import Stage
from vcnode_demo.narrator import NotAsToldError, Story
from vcnode_demo.scenarios import dns, outage, services, vnagent

ACTS = (vnagent.play, outage.play, services.play, dns.play)
# While the stage is kept, acme's shop has something to say so often.
_LOG_EVERY_S = 2.0


def play(terminal: Terminal, *, is_keeping: bool) -> int:
    """Play; exit code 1 when something is not as told. Raises ToolError if the stage cannot be set."""
    began_s = time.monotonic()
    story = Story(terminal)
    stage: Stage | None = None
    previous = {number: signal.signal(number, _end) for number in (signal.SIGTERM, signal.SIGHUP)}
    # A shell starts what is in the background with SIGINT ignored; it is to end this all the same.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        terminal.line("vcnode demo: tenants that do not trust each other share a node")
        stage = Stage()
        with stage:
            terminal.lines(cheatsheet.stage_lines(stage))
            for act in ACTS:
                act(story, stage)
            took_s = time.monotonic() - began_s
            terminal.line()
            terminal.line(f"All as told: {story.steps} steps, {story.checks} checks, {took_s:.1f} s.")
            if is_keeping:
                _keep(terminal, stage)
    except BrokenPipeError:
        raise  # nobody reads the story any more
    except (NotAsToldError, RefusedError, ToolError, OSError) as error:
        terminal.warn(f"NOT AS TOLD in step {story.steps}: {error}")
        for line in stage.last_log_lines if stage is not None else []:
            terminal.warn(line)
        return 1
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 0


def _keep(terminal: Terminal, stage: Stage) -> None:
    """Print what one can do now, and wait for Ctrl-C."""
    terminal.lines(cheatsheet.commands(stage))
    terminal.out.flush()
    pod = stage.pods["acme web/shop"]
    try:
        for number in itertools.count(1):
            time.sleep(_LOG_EVERY_S)
            stage.kubelet.append_log(pod.namespace, pod.name, "app", f"acme's shop sold anvil {number}")
    except KeyboardInterrupt:
        terminal.line()
        terminal.line("Taken down.")


def _end(number: int, _: FrameType | None) -> None:
    """Unwind on SIGTERM and SIGHUP as on Ctrl-C, so that processes and files go."""
    raise SystemExit(128 + number)
