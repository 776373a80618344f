# SPDX-License-Identifier: Apache-2.0
"""The help of each program and verb, as a terminal of 100 columns shows it."""

import argparse
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from unittest import mock

from daemonkit.run import command_line, lifecycle
from guest_agent import __main__ as guest_agent
from guest_agent import arguments as guest_arguments
from kubectl_vc import __main__ as plugin
from kubectl_vc import arguments as plugin_arguments
from kubectl_vc import invocation
from kubeproxy_ext import render
from kubeproxy_ext.__main__ import main as kubeproxy_ext
from vc_signer import __main__ as signer
from vc_signer import arguments as signer_arguments
from vcnode import demo, program, terminal
from vcnode.__main__ import EXPLAINERS
from vcnode.__main__ import parser as operators_tool
from vcnode_demo import runner
from vcnode_demo.__main__ import parser as demo_parser

DAEMONS = (
    *("vn-agent", "kubeproxy-ext", "dnsconfig", "dnsconfig-webhook", "kata-bridge", "vc-syncer"),
    "vc-operator",
)
# What argparse exits with for wrong arguments.
_EXIT_WRONG_ARGUMENTS = 2
_NEGATIVE = (
    "a verb that asks a question has a negative result (a daemon is not ready, a guest or a resolver is not"
    " current, the desired and the applied rules differ, a tenant's file is bad, a tenant is still retained,"
    " an object or a tenant is not synced, the node is not fit or has a finding)"
)


def exit_codes() -> Iterator[tuple[str, int, str]]:
    """Program, code and meaning of each."""
    yield "a daemon", 0, "it has drained after a signal to stop; `--check-config`: the configuration is good"
    yield "a daemon", lifecycle.EXIT_FAILED, "it cannot start, or has failed; the log has why"
    unusable = "arguments, a configuration or saved credentials that cannot be used, each fault on stderr"
    yield "a daemon", command_line.EXIT_UNUSABLE, unusable
    for number in lifecycle.STOP_SIGNALS:
        killed = f"{number.name} came while it drained: it dies of that signal, which a shell reports so"
        yield "a daemon", runner.EXIT_SIGNALED + number, killed
    yield "kubeproxy-ext render", 0, "the ruleset is printed; stderr has what was left out"
    yield "kubeproxy-ext render", render.EXIT_UNUSABLE, "arguments or objects that cannot be used"
    yield "vcnode-guest-agent", guest_agent.EXIT_STOPPED, "a signal to stop; the rules stay"
    yield "vcnode-guest-agent", guest_agent.EXIT_FAILED, "it cannot start; the log has why"
    yield "vcnode-guest-agent", _EXIT_WRONG_ARGUMENTS, "wrong arguments"
    yield "vc-signer", signer.EXIT_STOPPED, "SIGTERM or SIGINT"
    yield "vc-signer", signer.EXIT_FAILED, "it cannot start; the log has why"
    yield "vc-signer", _EXIT_WRONG_ARGUMENTS, "wrong arguments"
    yield "kubectl-vc", invocation.EXIT_DONE, "done; `doctor` and `unblock`: they found nothing"
    failed = "it failed, was not confirmed, or took longer than --timeout; stderr has object, hop and remedy"
    yield "kubectl-vc", invocation.EXIT_FAILED, f"{failed}. `doctor` and `unblock`: they found something"
    yield "kubectl-vc", _EXIT_WRONG_ARGUMENTS, "wrong arguments"
    yield "kubectl-vc", plugin.EXIT_INTERRUPTED, "SIGINT; what was asked of vc-operator goes on"
    yield "vcnode", 0, "done; a verb that asks a question: the answer is yes"
    yield "vcnode", terminal.EXIT_NEGATIVE, _NEGATIVE
    yield "vcnode", _EXIT_WRONG_ARGUMENTS, "wrong arguments"
    failed = "the question failed: a daemon does not answer, a file cannot be read; stderr explains it"
    yield "vcnode", terminal.EXIT_FAILED, f"{failed}. Also if the reader of the output has closed it"
    unknown = "nothing has failed that could be examined, and something could not"
    yield "vcnode check, vcnode doctor", terminal.EXIT_FAILED, unknown
    yield "vcnode", program.EXIT_INTERRUPTED, "SIGINT"
    yield f"vcnode {demo.VERB}", 0, "every check passed"
    yield f"vcnode {demo.VERB}", runner.EXIT_CHECK_FAILED, "a check failed, or a daemon did not start"
    not_in_a_clone = "wrong arguments, or an installed tree: the demo runs from a clone only"
    yield f"vcnode {demo.VERB}", _EXIT_WRONG_ARGUMENTS, not_in_a_clone
    for number in runner.END_SIGNALS:
        yield f"vcnode {demo.VERB}", runner.EXIT_SIGNALED + number, f"{number.name}; all is taken down"


def helps() -> Iterator[tuple[str, str]]:
    """Each command line's name and help."""
    with _columns(100):
        yield f"{', '.join(DAEMONS)}", _printed(lambda: command_line.parse_arguments("DAEMON", ["--help"]))
        yield "kubeproxy-ext render", _printed(lambda: kubeproxy_ext(["render", "--help"]))
        yield "vcnode-guest-agent", _printed(lambda: guest_arguments.parse(["--help"]))
        yield "vc-signer", _printed(lambda: signer_arguments.parse(["--help"]))
        yield "kubectl-vc", plugin_arguments.parser().format_help()
        for name, verb in verbs(plugin_arguments.parser()):
            yield f"kubectl-vc {name}", verb.format_help()
        yield "vcnode", operators_tool().format_help()
        found = dict(verbs(operators_tool()))
        found[demo.VERB] = demo_parser()
        for name, each in EXPLAINERS.items():
            found[f"explain {name}"] = dict(verbs(operators_tool((each,))))[name]
        for name, verb in sorted(found.items()):
            yield f"vcnode {name}", verb.format_help()


def verbs(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Each verb below a parser, such as `tenant add`."""
    for action in parser._actions:  # noqa: SLF001 - argparse shows its verbs in no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            for name, verb in action.choices.items():
                yield name, verb
                yield from ((f"{name} {inner}", each) for inner, each in verbs(verb))


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
