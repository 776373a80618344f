# SPDX-License-Identifier: Apache-2.0
"""The help of each program and verb, as a terminal of 100 columns shows it."""

import argparse
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from unittest import mock

from daemonkit.run import command_line
from guest_agent.core import arguments as guest_arguments
from kubeproxy_ext.__main__ import main as kubeproxy_ext
from vcnode import demo, explain_dns
from vcnode.__main__ import parser as operators_tool
from vcnode_demo.__main__ import parser as demo_parser

# Of all programs; a verb of `vcnode` says in its help what it answers with 1.
EXIT_CODES = (
    (0, "done; a daemon has drained after a signal to stop"),
    (1, "an error that the log or stderr explains; a verb that asks a question: the answer is no"),
    (2, "arguments or a configuration that cannot be used, each fault on stderr"),
    (130, "`vcnode` was interrupted"),
)
DAEMONS = ("vn-agent", "kubeproxy-ext", "dnsconfig", "dnsconfig-webhook", "kata-bridge")


def helps() -> Iterator[tuple[str, str]]:
    """Each command line's name and help."""
    with _columns(100):
        yield f"{', '.join(DAEMONS)}", _printed(lambda: command_line.parse_arguments("DAEMON", ["--help"]))
        yield "kubeproxy-ext render", _printed(lambda: kubeproxy_ext(["render", "--help"]))
        yield "vcnode-guest-agent", _printed(lambda: guest_arguments.parse(["--help"]))
        yield "vcnode", operators_tool().format_help()
        verbs = dict(_verbs(operators_tool()))
        verbs[demo.VERB] = demo_parser()
        verbs[f"explain {explain_dns.VERB}"] = dict(_verbs(operators_tool((explain_dns,))))[explain_dns.VERB]
        for name, verb in sorted(verbs.items()):
            yield f"vcnode {name}", verb.format_help()


def _verbs(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:  # noqa: SLF001 - argparse shows its verbs in no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            for name, verb in action.choices.items():
                yield name, verb
                yield from ((f"{name} {inner}", each) for inner, each in _verbs(verb))


def _printed(run: Callable[[], object]) -> str:
    printed = io.StringIO()
    with redirect_stdout(printed), suppress(SystemExit):
        run()
    return printed.getvalue()


@contextmanager
def _columns(count: int) -> Iterator[None]:
    """argparse asks the environment how wide the terminal is."""
    with mock.patch.dict(os.environ, {"COLUMNS": str(count)}):  # noqa: TID251 - as above
        yield
