# SPDX-License-Identifier: Apache-2.0
"""`vcnode VERB ...`, also `python -m vcnode`. Exit codes: 0 done, 1 failed, 2 wrong usage."""

import argparse
import datetime as dt
import importlib.util
import io
import os
import sys
from collections.abc import Sequence

from vcnode import explain, explain_dns, guests, status, tenant
from vcnode.terminal import Terminal, ToolError

# The demo and its fakes stand above this package; a node has neither.
_DEMO = "vcnode_demo"


def parser() -> argparse.ArgumentParser:
    """The command line; each verb adds its part."""
    top = argparse.ArgumentParser(
        prog="vcnode", description="Operator's tool of the vcnode node data plane.", allow_abbrev=False
    )
    verbs = top.add_subparsers(metavar="VERB", required=True)
    for verb in (status, guests, explain, explain_dns, tenant):
        verb.add_to(verbs)
    if importlib.util.find_spec(_DEMO) is not None:
        importlib.import_module(_DEMO).add_to(verbs)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code. Raises SystemExit for wrong usage and --help."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack a subject's characters
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:2] == ["explain", "dns"]:
        # argparse has no verbs of two words beside one of the first word alone.
        words[:2] = [explain_dns.VERB]
    arguments = parser().parse_args(words)
    terminal = Terminal(sys.stdout, sys.stderr, dt.datetime.now(dt.UTC))
    try:
        code: int = arguments.run(arguments, terminal)
        sys.stdout.flush()
    except ToolError as error:
        terminal.warn(str(error))
        return 1
    except BrokenPipeError:
        # `vcnode ... | head` reads no further. The interpreter flushes once more at its end, which must
        # not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
