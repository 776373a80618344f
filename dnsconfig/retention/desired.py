# SPDX-License-Identifier: Apache-2.0
"""What a pod is to have of kata-bridge."""

from dataclasses import dataclass

from dnsconfig.resolve.network import Origin


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a pod is to have: a text, a reason to wait, or both. Neither: it is withdrawn.

    It is for a sandbox that is attached to exactly these `networks`.

    `origin` has the servers in the text that the API server can give to another Service one day; a
    text that `is_bare` is what was left when they went.
    """

    text: str = ""
    waits: str = ""
    origin: Origin | None = None
    is_bare: bool = False
    networks: tuple[str, ...] = ()


WITHDRAWN = Wanted()
