# SPDX-License-Identifier: Apache-2.0
"""`vcnode doctor`: what is wrong on this node, and what to do. It changes nothing."""

import argparse
from pathlib import Path
from typing import Any

from vcnode import config_checks
from vcnode.core import findings
from vcnode.core.doctor import diagnose
from vcnode.node_probes import gather
from vcnode.output import add_output
from vcnode.terminal import EXIT_FAILED, Terminal, ToolError, exit_code


def add_to(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "doctor",
        help="what is wrong on this node, and what to do",
        description="Examine the daemons that have a configuration on this node, what they ask, and the node"
        " itself. Changes nothing. Exit code 0 without a finding, 1 with one, 3 if nothing answers.",
        allow_abbrev=False,
    )
    config_checks.add_directory(parser)
    parser.add_argument(
        "--serving-ca",
        type=Path,
        metavar="FILE",
        help="the CA by which tenants' apiservers verify vn-agent (their --kubelet-certificate-authority)",
    )
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Gather, diagnose, print."""
    try:
        facts = gather(arguments.config_directory, arguments.serving_ca, terminal.now.timestamp())
    except ToolError as error:
        terminal.warn(str(error))
        return EXIT_FAILED
    found = diagnose(facts)
    if terminal.is_document:
        terminal.document("FindingList", {"items": findings.as_json(found)})
    elif found:
        terminal.lines(findings.render(found, terminal.room))
    else:
        names = ", ".join(config.daemon for config in facts.configs)
        terminal.line(f"no findings: {names}")
    return exit_code(findings.verdict(found, allowed=frozenset()))
