# SPDX-License-Identifier: Apache-2.0
"""`vcnode check`: whether this node is fit for vcnode, before an installation or a start."""

import argparse
from pathlib import Path
from typing import Any

from vcnode import config_checks
from vcnode.core import findings
from vcnode.core.doctor_facts import ConfigFile, NamedFile
from vcnode.core.findings import Finding, Level
from vcnode.core.node_check import judge
from vcnode.daemons import loopback
from vcnode.node_facts import CRI_SOCKET, KUBELET, NRI_SOCKET, Places, gather
from vcnode.output import add_output
from vcnode.terminal import Terminal, exit_code

_ALLOWED = frozenset({Level.OK, Level.WARNING})


def add_to(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "check",
        help="whether this node is fit for vcnode, before an installation or a start",
        description="Examine the kernel, the container runtime, the kubelet, users, ports, the clock, disks,"
        " and the configurations that are there. Changes nothing. Exit code 0 if nothing failed,"
        " 1 if something did, 3 if something could not be examined.",
        allow_abbrev=False,
    )
    config_checks.add_directory(parser)
    parser.add_argument(
        "--cri-socket", type=Path, default=CRI_SOCKET, metavar="PATH", help=f"(default: {CRI_SOCKET})"
    )
    parser.add_argument(
        "--nri-socket", type=Path, default=NRI_SOCKET, metavar="PATH", help=f"(default: {NRI_SOCKET})"
    )
    parser.add_argument(
        "--kubelet",
        type=loopback,
        default=KUBELET,
        metavar="HOST:PORT",
        help="(default: 127.0.0.1:10250)",
    )
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Examine, print one line a check and its remedy."""
    daemons = config_checks.installed(arguments.config_directory)
    checks = config_checks.check_all(daemons, terminal.now.timestamp())
    places = Places(arguments.cri_socket, arguments.nri_socket, arguments.kubelet)
    found = [*judge(gather(places, daemons)), *_configurations(checks.configs, checks.files)]
    found += (
        Finding("configuration", Level.UNKNOWN, f"{late}: no result in time", "run it again")
        for late in checks.late
    )
    if terminal.is_document:
        terminal.document("FindingList", {"items": findings.as_json(found)})
    else:
        terminal.lines(findings.render(found, terminal.room))
    return exit_code(findings.verdict(found, allowed=_ALLOWED))


def _configurations(configs: tuple[ConfigFile, ...], files: tuple[NamedFile, ...]) -> list[Finding]:
    """One result a configuration without a problem, else each problem."""
    found = []
    for config in configs:
        own = [each for each in files if each.daemon == config.daemon]
        for error in config.errors:
            remedy = f"correct it; `{config.daemon} --config {config.path} --check-config`"
            found.append(findings.failed("configuration", f"{config.path}: {error}", remedy))
        for file in own:
            level = Level.WARNING if file.is_warning else Level.FAILED
            message = f"{config.daemon}: {file.key}: {file.path}: {file.message}"
            found.append(Finding("configuration", level, message, file.remedy))
        if not own and not config.errors:
            found.append(Finding("configuration", Level.OK, config.path))
    return found
