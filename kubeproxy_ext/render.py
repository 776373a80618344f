# SPDX-License-Identifier: Apache-2.0
"""`python -m kubeproxy_ext render`: prints the ruleset of one guest from a file of objects.

It is for reading, comparing and testing. The code is the daemon's, without a cluster. The package's README
lists what other programs may rely on.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import msgspec

from kubeproxy_ext.compute import objects
from kubeproxy_ext.compute.guest_view import GuestView
from kubeproxy_ext.compute.service_state import ServiceState
from ruleset.document import Document
from ruleset.model import Family
from ruleset.names import Backend
from ruleset.render.iptables import render as render_iptables
from ruleset.render.nft import render as render_nft

EXIT_UNUSABLE = 2

_RENDERERS = {Backend.IPTABLES: render_iptables, Backend.NFT: render_nft}


class UnusableInputError(Exception):
    """The objects or the guest cannot be used; the text has the problem and the place."""


def main(argv: Sequence[str], stdin: BinaryIO, stdout: TextIO, stderr: TextIO) -> int:
    """Print the ruleset. The exit code is 2 for unusable input, with the reason on stderr.

    Raises `SystemExit` with code 2 for wrong arguments.
    """
    arguments = command_parser().parse_args(argv)
    try:
        view = _view(arguments)
        state = read_state(_read(arguments.objects, stdin))
    except UnusableInputError as error:
        stderr.write(f"kubeproxy-ext render: {error}\n")
        return EXIT_UNUSABLE
    stdout.write(rendered(state, view, Backend(arguments.format)).text())
    for problem in state.problems():
        where = f"{problem.namespace}/{problem.service}"
        stderr.write(f"kubeproxy-ext render: left out of {where}: {problem.text}\n")
    return 0


def read_state(data: bytes) -> ServiceState:
    """The state of a v1 List in JSON; kinds that are not used are skipped.

    The list is complete: a Namespace that is not in it belongs to no tenant. Raises `UnusableInputError`.
    """
    try:
        given = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise UnusableInputError(f"the objects are not JSON: {error}") from error
    except RecursionError:
        raise UnusableInputError("the objects are nested too deeply") from None
    if not isinstance(given, dict) or (given.get("apiVersion"), given.get("kind")) != ("v1", "List"):
        raise UnusableInputError("the objects are not a v1 List (what `kubectl get -o json` prints)")
    items = given.get("items")
    if not isinstance(items, list):
        raise UnusableInputError("items: expected an array of objects")
    state = ServiceState(has_all_namespaces=True)
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise UnusableInputError(f"items[{index}]: expected an object")
        try:
            _put(state, objects.read(_without_nulls(item)))
        except objects.UnreadableError as error:
            raise UnusableInputError(f"items[{index}]: {error}") from error
    return state


def _without_nulls(value: Any) -> Any:
    """To Kubernetes' decoder a null of any type is a missing field."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def rendered(state: ServiceState, view: GuestView, backend: Backend) -> Document:
    """The document of one guest."""
    return _RENDERERS[backend](state.rules_for(view))


def _put(state: ServiceState, item: objects.AnyObject | None) -> None:
    match item:
        case objects.ServiceObject():
            state.put_service(item)
        case objects.EndpointSliceObject():
            state.put_slice(item)
        case objects.NamespaceObject():
            state.put_namespace(item)
        case objects.NodeObject():
            state.put_node(item)
        case None:
            pass


def _view(arguments: argparse.Namespace) -> GuestView:
    try:
        return GuestView(
            tenant=arguments.tenant,
            networks=tuple(arguments.network),
            pod_ips=tuple(arguments.pod_ip),
            node=arguments.node,
            zone=arguments.zone,
            service_cidrs=tuple(arguments.service_cidr),
            family=Family(arguments.family),
        )
    except ValueError as error:
        raise UnusableInputError(str(error)) from error


def _read(name: str, stdin: BinaryIO) -> bytes:
    try:
        return stdin.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise UnusableInputError(f"{name}: {error.strerror}") from error


def command_parser() -> argparse.ArgumentParser:
    """The options of `kubeproxy-ext render`; the man page is made from them."""
    parser = argparse.ArgumentParser(
        prog="kubeproxy-ext render",
        allow_abbrev=False,
        description="Print the complete ruleset of one guest, computed from a file of objects.",
    )
    add = parser.add_argument
    add("--objects", required=True, metavar="FILE|-", help="a v1 List in JSON; - is standard input")
    add("--node", required=True, help="the node that runs the guest")
    add("--zone", help="the node's zone; default: its Node object's label")
    add("--tenant", help="the guest's tenant, its cluster key; default: the super cluster itself")
    add(
        "--network",
        action="append",
        default=[],
        help="a network of the guest; repeat for more; default: default",
    )
    add(
        "--pod-ip",
        action="append",
        required=True,
        metavar="IP",
        help="an address of the guest; repeat for more",
    )
    add(
        "--service-cidr",
        action="append",
        default=[],
        metavar="CIDR",
        help="reject addresses of this range that no Service has; repeat for more",
    )
    add("--family", choices=[family.value for family in Family], default=Family.IPV4.value)
    add("--format", choices=[backend.value for backend in Backend], default=Backend.IPTABLES.value)
    return parser


def run(argv: Sequence[str]) -> int:
    """`main` with this process's streams."""
    return main(argv, sys.stdin.buffer, sys.stdout, sys.stderr)
