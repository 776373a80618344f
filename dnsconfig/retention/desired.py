# SPDX-License-Identifier: Apache-2.0
"""What a pod is to have of kata-bridge."""

from dataclasses import dataclass

from dnsconfig.resolve.network import AddressSource


@dataclass(frozen=True, slots=True)
class DesiredResolver:
    """A text, a message why the pod waits, or both; neither withdraws what the pod had.

    It applies only to a sandbox that is attached to exactly these `networks`.

    `address_source` has the servers in the text that the API server may give to another Service
    later. A text that `is_reduced` is what remained when those were revoked.
    """

    text: str = ""
    wait_message: str = ""
    address_source: AddressSource | None = None
    is_reduced: bool = False
    networks: tuple[str, ...] = ()


WITHDRAWN = DesiredResolver()
