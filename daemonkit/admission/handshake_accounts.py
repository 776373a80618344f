# SPDX-License-Identifier: Apache-2.0
"""The CPU time that TLS handshakes have cost, by client address and by certificate authority. Pure.

A handshake on the event loop holds up everyone. The accounts say for which addresses that is acceptable:
those whose handshakes have been cheap and whose chains end at a registered authority. All others do theirs
in a thread, in an order (`daemonkit.admission.fair_queue`) by what their account has cost.

What a handshake costs is known only afterwards, as TLS 1.3 encrypts the client's chain. An expensive check
moves all addresses of its authority to the thread, unless a check of the same chain was cheap before: then
the machine was slow, not the chain. An address that has proven nothing starts on a shared allowance.
"""

from collections import OrderedDict
from functools import partial
from typing import NamedTuple, TypeVar

from daemonkit.fairness.lease import Lease

K = TypeVar("K")
T = TypeVar("T")

# Handshakes on the loop: an account may use half a core in the long run, and 2 s of it at once. A server
# spends 0.6 to 1.2 ms on one, so that is 400 to 800 new connections a second; above that the account's
# handshakes take a thread, which costs each 0.1 ms more.
SHARE, BURST_S = 0.5, 2.0
# While other tenants have connections: an authority may use so much of the loop, and so much at once. Each
# handshake holds up their requests by 1 ms in two steps, and a request takes three steps of the loop. So more
# than a few a second would be seen in their p99.
SHARED_SHARE, SHARED_BURST_S = 0.005, 0.05
# Chains that cost more than TYPICAL_S raise it further, and keep the authority's next ones from the loop for
# 10 s longer at most: the same ones may have run while no other tenant had connections.
MAX_SHARED_S = 2 * SHARED_BURST_S
# For all handshakes on the loop of addresses that have proven nothing yet: after a restart some fifty, and
# then one now and then. What is bounded in bytes is worth 50 ms at worst.
UNPROVEN_SHARE, UNPROVEN_BURST_S = 0.005, 0.05
# Paid when a handshake begins on the loop, as a client that never ends it costs that much too.
TYPICAL_S = 0.001
# What a client's flight costs to check: 0.7 to 1.2 ms for honest chains. A client whose flight costs more
# than this stays off the loop for PENALTY_S / SHARE seconds.
EXPENSIVE_S = 0.0025
PENALTY_S = 60.0
# So many chains of an authority are known not to be expensive, by a check that took less. A later check that
# takes longer pays no penalty: where cores are shared, one honest check in 1 000 to 10 000 took 2.5 to 5 ms.
MAX_CHEAP_CHAINS = 16
# Above this, each second counts as so many: chains of 2.4 ms may take 6 % of the loop, not half of it. So may
# those that a client makes expensive although they are known to be cheap, by sending them byte by byte.
FAIR_CHECK_S = 0.0015
SURCHARGE = 20.0
# Of an account, handshakes that have begun on the loop and not ended. What the last flight of each costs is
# known once it is checked: 256 clients could withhold theirs, and then hold up the loop for 2 s.
MAX_BEGUN_ON_LOOP = 16
# How many addresses and authorities are remembered; the least recently used one is dropped first.
MAX_REMEMBERED = 4_096

_UNPROVEN = ""


class HandshakeCost(NamedTuple):
    """What one handshake has cost a server."""

    cpu_s: float
    # The part of it for the client's last flight: its chain and signature.
    check_s: float
    # A digest of all certificates that the client has sent; empty if that is not known.
    chain: bytes


NO_COST = HandshakeCost(0.0, 0.0, b"")


class HandshakeAccounts:
    """Levels of CPU seconds that leak away by the second."""

    def __init__(self) -> None:
        self._authority: OrderedDict[str, str] = OrderedDict()
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        # By authority: digests of chains that it has verified within EXPENSIVE_S, the newest first.
        self._cheap_chains: OrderedDict[str, tuple[bytes, ...]] = OrderedDict()
        self._begun_counts: dict[str, int] = {}
        # By client address and its account: those of several tenants may come from one address.
        self._tenants: OrderedDict[tuple[str, str], str] = OrderedDict()

    def __len__(self) -> int:
        """How many entries are kept."""
        return len(self._authority) + len(self._levels) + len(self._cheap_chains) + len(self._tenants)

    def account_of(self, client_address: str) -> str:
        """By which account an address is served: its authority's, or its own if it has proven none."""
        return self._authority.get(client_address, client_address)

    def assign(self, client_address: str, tenant: str) -> None:
        """A connection of `client_address` counts for this tenant."""
        _remember(self._tenants, (client_address, self.account_of(client_address)), tenant)

    def tenant_of(self, client_address: str) -> str:
        """The tenant of the last connection of `client_address` by the authority that it proved last; empty
        if it had none. Several tenants may share an address, or an authority."""
        return self._tenants.get((client_address, self.account_of(client_address)), "")

    def try_begin_on_loop(self, client_address: str, now_s: float, *, is_shared: bool = False) -> bool:
        """Whether the next handshake of `client_address` may run on the event loop. It is paid for then.

        `is_shared`: other tenants have connections.
        """
        authority = self._authority.get(client_address)
        if self._begun_counts.get(self.account_of(client_address), 0) >= MAX_BEGUN_ON_LOOP:
            return False
        if self._level(client_address, now_s) >= BURST_S:
            return False
        if authority is None:
            if self._level(_UNPROVEN, now_s, UNPROVEN_SHARE) >= UNPROVEN_BURST_S:
                return False
            self._raise(_UNPROVEN, TYPICAL_S, now_s, UNPROVEN_SHARE)
        elif self._level(authority, now_s) >= BURST_S or (
            is_shared and not self._try_share(authority, now_s)
        ):
            return False
        else:
            self._raise(authority, TYPICAL_S, now_s, SHARE)
        self._raise(client_address, TYPICAL_S, now_s, SHARE)
        return True

    def _try_share(self, authority: str, now_s: float) -> bool:
        """Take a handshake out of what an authority may use of a loop that others use too."""
        if self._level(_shared(authority), now_s, SHARED_SHARE) >= SHARED_BURST_S:
            return False
        self._raise(_shared(authority), TYPICAL_S, now_s, SHARED_SHARE, MAX_SHARED_S)
        return True

    def begin_on_loop(self, client_address: str) -> Lease:
        """A handshake of `client_address` has begun on the loop: released when it has ended, well or not. It
        stays its account's of now, whatever the address proves meanwhile."""
        account = self.account_of(client_address)
        self._begun_counts[account] = self._begun_counts.get(account, 0) + 1
        return Lease(partial(self._end_on_loop, account))

    def _end_on_loop(self, account: str) -> None:
        count = self._begun_counts.pop(account) - 1
        if count:
            self._begun_counts[account] = count

    def charge(
        self, client_address: str, authority: str, cost: HandshakeCost, now_s: float, *, is_on_loop: bool
    ) -> None:
        """A handshake of `client_address` has ended.

        `authority` verified its chain. If none did it is empty, and the cost is charged to the authority that
        the address has proven before.
        """
        cpu_s, check_s, chain = cost
        cheap_chains = self._cheap_chains.get(authority or self.account_of(client_address), ())
        is_expensive = check_s > EXPENSIVE_S and chain not in cheap_chains
        excess_s = max(0.0, cpu_s - TYPICAL_S)
        cost_s = PENALTY_S if is_expensive else 0.0
        if is_on_loop:
            cost_s += excess_s + SURCHARGE * max(0.0, check_s - FAIR_CHECK_S)
        if is_on_loop and client_address not in self._authority:
            self._raise(_UNPROVEN, excess_s, now_s, UNPROVEN_SHARE)
        if authority:
            _remember(self._authority, client_address, authority)
            if chain and chain not in cheap_chains and not is_expensive:
                _remember(self._cheap_chains, authority, (chain, *cheap_chains[: MAX_CHEAP_CHAINS - 1]))
        if cost_s:
            self._raise(client_address, cost_s, now_s, SHARE)
            account = self.account_of(client_address)
            if account != client_address:
                self._raise(account, cost_s, now_s, SHARE)
                if is_on_loop:
                    self._raise(_shared(account), excess_s, now_s, SHARED_SHARE, MAX_SHARED_S)

    def _level(self, account: str, now_s: float, share: float = SHARE) -> float:
        level, at_s = self._levels.get(account, (0.0, now_s))
        return max(0.0, level - (now_s - at_s) * share)

    def _raise(
        self, account: str, cost_s: float, now_s: float, share: float, most_s: float = BURST_S + PENALTY_S
    ) -> None:
        # No account stays off the loop for longer than for what it did last.
        level = min(self._level(account, now_s, share) + cost_s, most_s)
        _remember(self._levels, account, (level, now_s))


def _shared(authority: str) -> str:
    """The account of what an authority uses of a loop that others use too."""
    return f"shared {authority}"


def _remember(entries: OrderedDict[K, T], key: K, value: T) -> None:
    entries[key] = value
    entries.move_to_end(key)
    if len(entries) > MAX_REMEMBERED:
        entries.popitem(last=False)
