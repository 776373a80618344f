# SPDX-License-Identifier: Apache-2.0
"""A tenant's API server: the client of it, its credentials, and where it is."""

from collections.abc import Collection
from urllib.parse import urlsplit

from daemonkit.kube.client import HostResolver, ReceivedBytes
from daemonkit.kube.credentials import Credentials
from daemonkit.kube.kubeconfig import Access
from syncer.policy import addresses
from syncer.surroundings import OpenTenant, ProvenClient

# Requests of one tenant under way at once; kept connections to its API server are as many.
MAX_IN_FLIGHT = 16


class TenantApiServer:
    """Built without connecting."""

    def __init__(
        self,
        access: Access,
        open_client: OpenTenant,
        user_agent: str,
        received: ReceivedBytes,
        judge: HostResolver | None = None,
    ) -> None:
        """`received` counts what connections and answers hold. `judge` has the addresses to dial of a host
        that another user named. That never changes: a VirtualCluster imports from its beginning.
        """
        self.access = access
        self._credentials = Credentials(lambda: self.access)
        resolve = judge if access.is_foreign else None
        self.client = open_client(self._credentials, MAX_IN_FLIGHT, user_agent, received, resolve)
        self._known_peers: frozenset[str] = frozenset()

    def use(self, access: Access) -> None:
        """Take rotated credentials, from the next request on."""
        if access != self.access:
            self.access = access
            self._credentials.reload()

    def peers(self) -> Collection[str]:
        """Where it is by its kubeconfig: the address there, or those of the name there."""
        return known_addresses(self.client, self.access.server)

    def note_peers(self) -> bool:
        """Note where it is now; returns whether that is elsewhere than before: DNS may answer otherwise."""
        before, self._known_peers = self._known_peers, frozenset(self.peers())
        return before != self._known_peers


def known_addresses(client: ProvenClient, server: str) -> Collection[str]:
    """Where an API server is: the address in its URL, and those at which the name there has proved itself."""
    host = addresses.parse(urlsplit(server).hostname or "")
    return client.peer_addresses if host is None else {*client.peer_addresses, str(host)}
