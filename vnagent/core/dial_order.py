# SPDX-License-Identifier: Apache-2.0
"""In which order the addresses of one server are dialled: those that failed last are at the end.

A DNS name may have addresses that cannot be reached, as one of several API servers that is down, or IPv6
where the node has none.
"""

from collections.abc import Collection, Iterable

# Of one name.
MAX_HOSTS = 16
# For one request. A dial that gets no answer takes seconds.
MAX_DIALS = 3


class DialOrder:
    """IP addresses, each once."""

    def __init__(self, hosts: Iterable[str]) -> None:
        """At most MAX_HOSTS of them are used. Empty ones are left out."""
        self._hosts: list[str] = []
        self.update(hosts)

    def update(self, hosts: Iterable[str]) -> None:
        """Use these from now on. Known ones keep their order, and new ones are behind them."""
        found = list(dict.fromkeys(filter(None, hosts)))[:MAX_HOSTS]
        known = [host for host in self._hosts if host in found]
        self._hosts = known + [host for host in found if host not in known]

    def next_host(self, failed: Collection[str]) -> str:
        """The next address for a request whose dials to `failed` did not succeed: one of the others if there
        is one, else the first; empty without any."""
        others = (host for host in self._hosts if host not in failed)
        return next(others, self._hosts[0] if self._hosts else "")

    def has_other(self, failed: Collection[str], dial_count: int) -> bool:
        """Whether such a request, after `dial_count` dials, should dial once more."""
        return dial_count < MAX_DIALS and any(host not in failed for host in self._hosts)

    def move_back(self, host: str) -> None:
        """This address could not be reached: others are dialled before it."""
        if host in self._hosts:
            self._hosts.remove(host)
            self._hosts.append(host)
