# SPDX-License-Identifier: Apache-2.0
"""Which sandboxes live on this node, and whose pods they are, out of what several sources say.

NRI tells of a sandbox first and of its end at once; a list of the CRI knows which of several
sandboxes of a pod is the one, and repairs what NRI missed. A source that is away says nothing, and
nothing is concluded from that.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from kata_bridge.channels.stock_policy import why_untouchable
from tenancy import keys
from tenancy.names import Refused
from tenancy.ownership import ContainerPolicy, owned_pod

# containerd calls NRI's RunPodSandbox before the sandbox is in its own store (2.4.2): for so long a
# list, or another Synchronize, that does not have it proves nothing.
GRACE_S = 30.0
# Sandboxes that were stopped stay in lists until the kubelet's garbage collection.
MAX_STOPPED = 10_000

# The kubelet's: in a static pod's sandbox this, and not the API's uid, is what the runtime knows.
CONFIG_HASH = "kubernetes.io/config.hash"

_NO_CONTAINERS = ContainerPolicy()

# containerd's are 64 hex digits. They become names of files, so nothing that a path is made of.
_SANDBOX_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


def is_sandbox_id(text: str) -> bool:
    """Whether `text` may be the id of a sandbox."""
    return _SANDBOX_ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Seen:
    """One sandbox as a source shows it; `netns` and `ips` are empty where the source has them not.

    `attempt` is None where the source does not tell it (NRI); `created_at_ns` is 0 then.
    """

    id: str
    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    runtime_handler: str = ""
    ips: tuple[str, ...] = ()
    netns: str = ""
    is_host_network: bool = False
    is_alive: bool = True
    attempt: int | None = None
    created_at_ns: int = 0


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A living sandbox and the pod that it is, in the super cluster's names and the tenant's.

    `tenant` is empty for a pod that is no tenant's. `refusal` is not empty where the pod says to be
    a tenant's in words that cannot be used: it is nobody's then, and gets nothing.
    """

    id: str
    namespace: str
    name: str
    uid: str
    tenant: str = ""
    tenant_namespace: str = ""
    tenant_name: str = ""
    networks: tuple[str, ...] = (keys.DEFAULT_NETWORK,)
    ips: tuple[str, ...] = ()
    runtime_handler: str = ""
    netns: str = ""
    is_host_network: bool = False
    refusal: str = ""
    # Why the policy of its guest's stock agent is not ours to replace; empty if it may be.
    policy_refusal: str = ""
    # The ways in, where whoever described the sandbox decided them (a file of the static source).
    channels: tuple[str, ...] = ()


def sandbox_of(seen: Seen) -> Sandbox:
    """Say who a sandbox is."""
    uid = seen.uid or seen.annotations.get(CONFIG_HASH, "")
    owned = owned_pod(seen.namespace, seen.name, uid, seen.annotations, (), _NO_CONTAINERS)
    tenant = tenant_namespace = tenant_name = refusal = ""
    if isinstance(owned, Refused):
        refusal = f"whose pod it is cannot be told: {owned.reason}"
    elif owned is not None:
        tenant, tenant_namespace, tenant_name = owned.tenant, owned.namespace, owned.name
    return Sandbox(
        id=seen.id,
        namespace=seen.namespace,
        name=seen.name,
        uid=uid,
        tenant=tenant,
        tenant_namespace=tenant_namespace,
        tenant_name=tenant_name,
        networks=(seen.labels.get(keys.ARKTOS_NETWORK) or keys.DEFAULT_NETWORK,),
        ips=seen.ips,
        runtime_handler=seen.runtime_handler,
        netns=seen.netns,
        is_host_network=seen.is_host_network,
        refusal=refusal,
        policy_refusal=why_untouchable(seen.annotations, seen.runtime_handler),
    )


@dataclass(frozen=True, slots=True)
class Appeared:
    """A sandbox is there, or what is known of it changed."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Vanished:
    id: str


Change = Appeared | Vanished


@dataclass(slots=True)
class _Known:
    seen: Seen
    seen_at_s: float
    order: int
    was_listed: bool = False


class Sandboxes:
    """The picture, and what each piece of news changes in it.

    Of several living sandboxes of one pod only the newest is in the picture: the kubelet starts
    another one when it holds the first for lost, and the pod's containers go into that.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._stopped: dict[str, None] = {}
        self._placed: dict[str, Sandbox] = {}
        self._current: dict[str, Sandbox] = {}
        self._order = 0

    @property
    def current(self) -> Mapping[str, Sandbox]:
        """All sandboxes of the picture by id."""
        return self._current

    def knows(self, sandbox: str) -> bool:
        """Whether the id was told of before, so that its details need not be asked for."""
        return sandbox in self._known or sandbox in self._stopped

    # ---- NRI

    def ran(self, seen: Seen, now_s: float) -> tuple[Change, ...]:
        """RunPodSandbox."""
        self._stopped.pop(seen.id, None)
        self._see(seen, now_s)
        return self._changes()

    def stopped(self, sandbox: str) -> tuple[Change, ...]:
        """StopPodSandbox or RemovePodSandbox: it does not come back, whatever a list still says."""
        self._known.pop(sandbox, None)
        self._stopped[sandbox] = None
        while len(self._stopped) > MAX_STOPPED:
            del self._stopped[next(iter(self._stopped))]
        return self._changes()

    def synchronized(self, all_seen: Iterable[Seen], now_s: float) -> tuple[Change, ...]:
        """Synchronize: every sandbox of the runtime, the dead ones too."""
        listed = {seen.id: seen for seen in all_seen}
        for seen in listed.values():
            if not seen.is_alive:
                self._drop(seen.id)
            elif seen.id not in self._stopped:
                self._see(seen, now_s)
        self._drop_missing(listed, now_s)
        return self._changes()

    # ---- CRI

    def listed(self, all_seen: Iterable[Seen], begun_s: float, now_s: float) -> tuple[Change, ...]:
        """A whole list, asked for at `begun_s`."""
        listed = {seen.id: seen for seen in all_seen}
        for seen in listed.values():
            if seen.id in self._stopped:
                continue
            if seen.is_alive:
                self._see(seen, now_s).was_listed = True
            elif not self._is_new(seen.id, begun_s):
                self._drop(seen.id)
        self._drop_missing(listed, begun_s)
        for sandbox in [each for each in self._stopped if each not in listed]:
            del self._stopped[sandbox]
        return self._changes()

    # ---- files

    def placed(self, sandboxes: Mapping[str, Sandbox]) -> tuple[Change, ...]:
        """The static source: all that its directory describes, by id."""
        self._placed = dict(sandboxes)
        return self._changes()

    # ----

    def _see(self, seen: Seen, now_s: float) -> _Known:
        known = self._known.get(seen.id)
        if known is None:
            self._order += 1
            known = self._known[seen.id] = _Known(seen, now_s, self._order)
        else:
            old = known.seen
            # Lists have neither, and NRI has no attempt: what one said the other does not unsay.
            known.seen = replace(
                seen,
                ips=seen.ips or old.ips,
                netns=seen.netns or old.netns,
                is_host_network=seen.is_host_network or old.is_host_network,
                attempt=old.attempt if seen.attempt is None else seen.attempt,
                created_at_ns=seen.created_at_ns or old.created_at_ns,
            )
        return known

    def _is_new(self, sandbox: str, at_s: float) -> bool:
        known = self._known.get(sandbox)
        return known is not None and not known.was_listed and at_s - known.seen_at_s < GRACE_S

    def _drop_missing(self, listed: Mapping[str, Seen], at_s: float) -> None:
        for sandbox in list(self._known):
            if sandbox not in listed and not self._is_new(sandbox, at_s):
                self._drop(sandbox)

    def _drop(self, sandbox: str) -> None:
        self._known.pop(sandbox, None)

    def _changes(self) -> tuple[Change, ...]:
        newest: dict[str, _Known] = {}
        for known in self._known.values():
            uid = known.seen.uid or known.seen.annotations.get(CONFIG_HASH) or known.seen.id
            other = newest.get(uid)
            if other is None or _rank(known) > _rank(other):
                newest[uid] = known
        current = {known.seen.id: sandbox_of(known.seen) for known in newest.values()} | self._placed
        changes: list[Change] = [Vanished(old) for old in self._current if old not in current]
        changes += (
            Appeared(sandbox) for sandbox in current.values() if self._current.get(sandbox.id) != sandbox
        )
        self._current = current
        return tuple(changes)


def _rank(known: _Known) -> tuple[float, int, int]:
    """Newer is greater. One whose attempt nobody told yet was just run, so it is the newest."""
    attempt = known.seen.attempt
    return (float("inf") if attempt is None else attempt, known.seen.created_at_ns, known.order)
