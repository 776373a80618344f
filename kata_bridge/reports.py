# SPDX-License-Identifier: Apache-2.0
"""Whom the gate tells what it does; `cluster_reports` tells the super cluster."""

from typing import Protocol

from kata_bridge.sandboxes.core.sandbox import Sandbox
from kata_bridge.start_gate.core.decision import Reason


class Reports(Protocol):
    """Who tells the rest of the cluster. Each of these begins work, and waits for nothing."""

    def held(self, sandbox: Sandbox, reasons: tuple[Reason, ...]) -> None:
        """A container of this pod was refused."""

    def opened(self, sandbox: Sandbox) -> None:
        """What this pod has waited for is there: let it be tried again."""

    def got_through(self, sandbox: Sandbox, container: str) -> None:
        """A container runs of which the gate was not asked."""

    def not_ready(self, sandbox: Sandbox) -> None:
        """The annotations of this pod say that its network is not ready: read them until they do."""

    def forgotten(self, sandbox: Sandbox) -> None:
        """The sandbox is gone."""
