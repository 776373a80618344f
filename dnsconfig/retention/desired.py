# SPDX-License-Identifier: Apache-2.0
"""What a pod is to have of kata-bridge."""

from dataclasses import dataclass

from dnsconfig.resolve.network import RevocableAddresses


@dataclass(frozen=True, slots=True)
class DesiredResolver:
    """A text, a message why the pod waits, or both; neither withdraws what the pod had.

    It applies only to a sandbox that is attached to exactly these `networks`.

    A text that `is_reduced` is what remained when its `revocable` addresses were revoked.
    """

    text: str = ""
    wait_message: str = ""
    revocable: RevocableAddresses | None = None
    is_reduced: bool = False
    networks: tuple[str, ...] = ()


WITHDRAWN = DesiredResolver()
