# SPDX-License-Identifier: Apache-2.0
"""Loads a verb's module when it is asked for: a node need not have the packages of all verbs."""

import argparse
from typing import Any, NoReturn, Protocol

from vcnode.terminal import Terminal, ToolError

# By the module that is not there. Packages of ours; distributions that they bring.
_PACKAGES = {
    "vnagent": "vcnode-agent",
    "bridge_api": "vcnode-services",
    "kata_bridge": "vcnode-services",
    "kubeproxy_ext": "vcnode-services",
    "grpc": "vcnode-services",
    "dns": "vcnode-tools",
}


class Verb(Protocol):
    """A module of this package with a verb."""

    def add_to(self, verbs: Any) -> None:
        """Add the verb to the command line."""


class MissingVerb:
    """A verb whose package is not installed: it says which."""

    def __init__(self, name: str, package: str) -> None:
        self._name = name
        self._package = package

    def add_to(self, verbs: Any) -> None:
        """Add it, with any arguments."""
        # With another prefix all of them are positional, whatever they begin with.
        parser = verbs.add_parser(
            self._name, help=f"needs the package {self._package}", prefix_chars="\0", add_help=False
        )
        parser.add_argument("arguments", nargs="*")
        parser.set_defaults(run=self.run)

    def run(self, _: argparse.Namespace, __: Terminal) -> NoReturn:
        """Raise ToolError."""
        raise ToolError(f"vcnode {self._name} needs the package {self._package}: install it")


def load(module: str) -> Verb:
    """The verb of this module, or what stands for it where a package of ours is missing.

    Raises ModuleNotFoundError for any other module that is not there.
    """
    try:
        return _module_of(module)
    except ModuleNotFoundError as error:
        package = _PACKAGES.get((error.name or "").partition(".")[0])
        if package is None:
            raise
        return MissingVerb(module.replace("_", " "), package)


def _module_of(module: str) -> Verb:
    match module:
        case "status":
            from vcnode import status

            return status
        case "guests":
            from vcnode import guests

            return guests
        case "tenants":
            from vcnode import tenants

            return tenants
        case "explain":
            from vcnode import explain

            return explain
        case "explain_dns":
            from vcnode import explain_dns

            return explain_dns
        case "explain_object":
            from vcnode import explain_object

            return explain_object
        case "tenant":
            from vcnode import tenant

            return tenant
        case "log_level":
            from vcnode import log_level

            return log_level
        case "init":
            from vcnode import init

            return init
        case "check":
            from vcnode import check

            return check
        case "doctor":
            from vcnode import doctor

            return doctor
        case "top":
            from vcnode import top

            return top
        case "bugreport":
            from vcnode import bugreport

            return bugreport
        case "demo":
            from vcnode import demo

            return demo
        case _:
            raise ValueError(module)
