# SPDX-License-Identifier: Apache-2.0
"""Runs one verb between the process' streams and its exit code."""

import datetime as dt
import io
import os
import sys
from collections.abc import Callable, Mapping

from daemonkit.run.lifecycle import terminal_variables
from vcnode.output import Output
from vcnode.terminal import EXIT_FAILED, Terminal, ToolError

EXIT_INTERRUPTED = 130


def run_verb(verb: Callable[[Terminal], int], output: Output = Output.TEXT) -> int:
    """Return the exit code of `verb`, which may raise ToolError."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack a subject's characters
    terminal = Terminal(
        sys.stdout,
        sys.stderr,
        dt.datetime.now(dt.UTC),
        output,
        _width(),
        has_colors=can_show_colors(terminal_variables(), is_terminal=sys.stdout.isatty()),
        can_redraw=can_redraw(terminal_variables(), is_terminal=sys.stdout.isatty()),
    )
    try:
        code = verb(terminal)
        sys.stdout.flush()
    except ToolError as error:
        terminal.warn(str(error))
        return EXIT_FAILED
    except BrokenPipeError:
        # `vcnode ... | head` reads no further. The interpreter flushes once more at its end, which must
        # not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return code


def can_show_colors(environment: Mapping[str, str], *, is_terminal: bool) -> bool:
    """Whether states are printed in colour.

    no-color.org: NO_COLOR counts "when present and not an empty string (regardless of its value)".
    """
    return not environment.get("NO_COLOR") and can_redraw(environment, is_terminal=is_terminal)


def can_redraw(environment: Mapping[str, str], *, is_terminal: bool) -> bool:
    """Whether the terminal acts upon control sequences."""
    return is_terminal and environment.get("TERM", "dumb") != "dumb"


def _width() -> int | None:
    """The terminal's width in characters; None for a file or a pipe, and where it is not known."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):  # no terminal; a stream without a descriptor
        return None
