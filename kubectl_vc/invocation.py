# SPDX-License-Identifier: Apache-2.0
"""What a verb works with: the super cluster, the terminal, the clock and files."""

import datetime as dt
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TextIO

from kubectl_vc.core.command import Command
from kubectl_vc.core.faults import FaultReason, PluginError, RequestError, sentence
from kubectl_vc.core.table import printable
from kubectl_vc.core.view import VIRTUAL_CLUSTERS, TenantView
from kubectl_vc.port import ApiServer

EXIT_DONE = 0
EXIT_FAILED = 1


class Invocation(NamedTuple):
    """One call of the plugin. `connect` leads to where other flags of kubectl and more variables of its
    environment lead; `monotonic` is in seconds."""

    command: Command
    cluster: ApiServer
    connect: Callable[[Sequence[str], Mapping[str, str]], ApiServer]
    out: TextIO
    err: TextIO
    text_in: TextIO
    environment: Mapping[str, str]
    program: str
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
    monotonic: Callable[[], float] = time.monotonic

    def print(self, line: str) -> None:
        """A result, on stdout."""
        self.out.write(f"{printable(line)}\n")

    def note(self, line: str) -> None:
        """Progress or a warning, on stderr."""
        self.err.write(f"{printable(line)}\n")
        self.err.flush()

    def virtual_cluster(self) -> TenantView:
        """The one that the command names. Raises PluginError."""
        try:
            return TenantView(
                self.cluster.get(VIRTUAL_CLUSTERS, self.command.name, self.command.scope.namespace)
            )
        except RequestError as error:
            raise self.failed("read", error) from None

    def failed(self, action: str, error: RequestError) -> PluginError:
        """Why the command's VirtualCluster could not be read or changed."""
        where = self.command.scope.namespace
        name = f"{where}/{self.command.name}" if where else self.command.name
        hint = ""
        if error.fault.reason is FaultReason.NOT_FOUND and not where:
            hint = " (no --namespace is given: that of the context was asked)"
        return PluginError(sentence(f"{action} VirtualCluster {name}{hint}", error.fault))

    def confirm(self, view: TenantView, consequence: str) -> bool:
        """Whether a person types the name of what cannot be undone. Without --yes and a terminal: no."""
        if self.command.is_confirmed:
            return True
        self.err.write(f"{printable(consequence)}\nType its name, {printable(view.name)}, to go on: ")
        self.err.flush()
        if self.text_in.readline().strip() == view.name:
            return True
        self.note("not confirmed: nothing was changed")
        return False

    def config_files(self) -> str:
        """The person's kubeconfigs as KUBECONFIG has them, with absolute paths."""
        home = os.path.join(self.environment.get("HOME", ""), ".kube", "config")  # noqa: PTH118 - pathlib loads slowly
        given = self.command.scope.kubeconfig or self.environment.get("KUBECONFIG", "") or home
        files = [given] if self.command.scope.kubeconfig else given.split(os.pathsep)
        return os.pathsep.join(os.path.abspath(each) for each in files if each)  # noqa: PTH100 - as above
