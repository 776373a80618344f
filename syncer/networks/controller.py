# SPDX-License-Identifier: Apache-2.0
"""Serves the Networks of one tenant: one task, one request at a time, so that it holds up no other.

It watches Networks alone. Their objects are read when a Network changes, and every `RESYNC_S`. Pods are asked
for only while a Network is being deleted: one pod of it is enough to wait.
"""

import asyncio
import bisect
import contextlib
import datetime as dt
import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from daemonkit import logs
from daemonkit.backoff import backoff_s, spread_s
from daemonkit.fairness.scheduler import Account
from daemonkit.kube import deep_json
from daemonkit.kube.byte_budget import ByteBudget
from daemonkit.kube.client import ApiError, Requester, UnreachableError
from daemonkit.kube.event_recorder import EVENTS, EventSource, InvolvedObject, build_event
from daemonkit.kube.reflector import Reflector, Transport
from daemonkit.kube.reflector_policy import Timing
from daemonkit.kube.resources import PODS, Resource
from daemonkit.kube.store import Change
from daemonkit.tasks import Tasks
from syncer.caches.cached_object import CachedObject, parse
from syncer.core.due_times import DueTimes
from syncer.core.objects import Object, is_deleting, name_of
from syncer.core.plan import Action, Create, Delete, Patch, Side
from syncer.core.requests import request_of
from syncer.networks.definition import CRD, NETWORKS_CRD
from syncer.networks.desired import (
    NetworkEvent,
    NetworkPods,
    Problem,
    Ref,
    failure_status,
    is_served,
    objects_of,
    plan,
)
from syncer.networks.objects import (
    ENDPOINT_SLICE,
    MANAGER,
    NETWORK,
    NetworkSettings,
    default_network,
)
from tenancy import keys

RESYNC_S = 600.0
# For pods to go, for an address, and for the CustomResourceDefinition.
WAIT_S = 5.0
FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 300.0
# Of a tenant, so that it cannot fill the memory; more are reported.
MAX_NETWORKS = 100
# More names at once are cheaper to sort than to insert.
_MANY_CHANGES = 64
# Finalizer, objects, status, and one for a conflict.
_MAX_ROUNDS = 5
_MAX_BYTES = 4 << 20

_OBJECT = msgspec.json.Decoder(Object)

_log = logs.get(__name__)


class _Round(msgspec.Struct, frozen=True):
    """What came of one plan."""

    problems: tuple[Problem, ...] = ()
    is_waiting: bool = False
    has_written: bool = False


class NetworkController:
    """The Networks of one tenant. `run` serves them until it is cancelled.

    `report` gets (reason, message) of each problem once, and ("", "") when none is left. `may_write` is asked
    before each write. `account` is the tenant's, which pays for its watch.
    """

    def __init__(
        self,
        client: Requester,
        watch_client: Transport,
        settings: NetworkSettings,
        report: Callable[[str, str], None],
        *,
        may_write: Callable[[], bool] = lambda: True,
        wall: Callable[[], float] = time.time,
        jitter: Callable[[], float] = random.random,
        timing: Timing | None = None,
        cache_budget: ByteBudget[CachedObject] | None = None,
        account: Account | None = None,
    ) -> None:
        self._client = client
        self._settings = settings
        self._report = report
        self._may_write = may_write
        self._wall = wall
        self._jitter = jitter
        self._due: DueTimes[str] = DueTimes()
        self._now_due: OrderedDict[str, None] = OrderedDict()  # the first is synced next
        self._names: list[str] = []
        """Of all Networks, sorted: the first ones are served."""
        self._failures: dict[str, int] = {}
        self._problems: dict[str, tuple[Problem, ...]] = {}
        self._changed = asyncio.Event()
        self._tasks = Tasks("networks", through=None if account is None else account.run)
        self._networks: Reflector[CachedObject] = Reflector(
            watch_client,
            NETWORK.resource,
            parse,
            budget=cache_budget,
            may_be_absent=True,
            on_change=self._networks_changed,
            timing=timing,
        )

    async def run(self) -> None:
        """Serve the tenant's Networks. Failures are retried; none ends this."""
        try:
            self._tasks.spawn(self._networks.run(), "watch")
            await self._networks.synced.wait()
            await self._retried(self._ensure_definition)
            if self._settings.makes_default:
                await self._retried(self._ensure_default)
            while True:
                await self._sync_due()
        finally:
            await self._tasks.close(1.0)

    # ---- what is due

    def _networks_changed(self, changes: Sequence[Change[CachedObject]]) -> None:
        for change in changes:
            self._due.forget(change.key[1])
            self._now_due[change.key[1]] = None
        self._note_names([change.key[1] for change in changes])
        self._changed.set()

    def _note_names(self, changed: Sequence[str]) -> None:
        if len(changed) > _MANY_CHANGES:
            self._names = sorted(key[1] for key in self._networks.objects)
            return
        for name in changed:
            at = bisect.bisect_left(self._names, name)
            is_noted = at < len(self._names) and self._names[at] == name
            is_there = ("", name) in self._networks.objects
            if is_there and not is_noted:
                self._names.insert(at, name)
            elif is_noted and not is_there:
                del self._names[at]

    async def _sync_due(self) -> None:
        """Sync the network that has been due for longest, or wait until one is."""
        now = asyncio.get_running_loop().time()
        for name in self._due.take(now):
            self._due.forget(name)
            self._now_due[name] = None
        if not self._now_due:
            first_s = self._due.first_s
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if first_s is None else first_s - now):
                    await self._changed.wait()
            return
        name, _ = self._now_due.popitem(last=False)
        wait_s = await self._sync(name)
        if wait_s is not None and name not in self._now_due:  # else it has changed meanwhile
            self._due.set(name, asyncio.get_running_loop().time() + wait_s)

    async def _sync(self, name: str) -> float | None:
        """Sync one network. Returns after how long it is due again; None for one that is gone."""
        try:
            problems, wait_s = await self._bring(name)
        except (ApiError, UnreachableError) as error:
            failures = self._failures[name] = self._failures.get(name, 0) + 1
            text = str(error)[:300]
            await self._note(name, (Problem(NetworkEvent.PROVISION_FAILED, text),))
            return spread_s(
                backoff_s(failures, first_s=FIRST_RETRY_S, longest_s=LONGEST_RETRY_S), self._jitter()
            )
        self._failures.pop(name, None)
        await self._note(name, problems)
        return wait_s

    async def _bring(self, name: str) -> tuple[tuple[Problem, ...], float | None]:
        """Plan and act until nothing is left to do. Raises ApiError and UnreachableError."""
        found = _Round()
        for _ in range(_MAX_ROUNDS):
            network = await self._get(NETWORK.resource, "", name)
            if network is None:
                return (), None
            if not is_served(network):
                return (), RESYNC_S
            if self._is_beyond_limit(name):
                text = f"a tenant has at most {MAX_NETWORKS} networks of type flat"
                return (Problem(NetworkEvent.PROVISION_FAILED, text),), RESYNC_S
            found = await self._round(network)
            if not found.has_written:
                return found.problems, WAIT_S if found.is_waiting else RESYNC_S
        return found.problems, WAIT_S

    async def _round(self, network: Object) -> _Round:
        name = name_of(network)
        objects: dict[Ref, Object] = {}
        for kind, namespace, object_name in objects_of(name):
            value = await self._get(kind.resource, namespace, object_name)
            if value is not None:
                objects[Ref(kind.resource.plural, namespace, object_name)] = value
        apiserver = await self._get(ENDPOINT_SLICE.resource, "default", "kubernetes")
        pods = await self._pods_of(name) if is_deleting(network) else None
        decided = plan(network, objects, self._settings, apiserver=apiserver, pods=pods)
        has_written = False
        for action in decided.actions:
            if not self._may_write():
                return _Round(decided.problems, is_waiting=True)
            has_written = True
            try:
                await self._act(action)
            except ApiError as error:
                if error.status.code in (404, 409):
                    break  # changed meanwhile: plan anew
                if error.status.code in (400, 403, 422):
                    await self._fail(network, str(error)[:300])
                raise
        return _Round(decided.problems, decided.is_waiting, has_written)

    async def _fail(self, network: Object, message: str) -> None:
        for action in failure_status(network, message):
            await self._act(action)

    def _is_beyond_limit(self, name: str) -> bool:
        return bisect.bisect_left(self._names, name) >= MAX_NETWORKS

    # ---- once

    async def _ensure_definition(self) -> bool:
        """Whether the CustomResourceDefinition is there; it is made if the operator wants that."""
        if not self._networks.is_absent:
            return True
        if self._settings.installs_crd and self._may_write():
            try:
                await self._act(Create(Side.TENANT, CRD, NETWORKS_CRD))
            except ApiError as error:
                if error.status.code != 409:
                    raise
            return not self._networks.is_absent
        text = f"CustomResourceDefinition {name_of(NETWORKS_CRD)} is not installed: there are no networks"
        self._report(NetworkEvent.CRD_MISSING, text)
        if not self._settings.installs_crd:
            while self._networks.is_absent:  # its watch tells once it is there
                self._changed.clear()
                await self._changed.wait()
        return not self._networks.is_absent

    async def _ensure_default(self) -> bool:
        if not self._may_write():
            return False
        if await self._get(NETWORK.resource, "", keys.DEFAULT_NETWORK) is None:
            try:
                await self._act(Create(Side.TENANT, NETWORK, default_network()))
            except ApiError as error:
                # 404: the CustomResourceDefinition is not served yet.
                if error.status.code == 404:
                    return False
                if error.status.code != 409:
                    raise
        return True

    async def _retried(self, step: Callable[[], Awaitable[bool]]) -> None:
        failures = 0
        while True:
            try:
                self._changed.clear()
                if await step():
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(WAIT_S):
                        await self._changed.wait()  # its watch tells once the definition is served
                continue
            except (ApiError, UnreachableError) as error:
                failures += 1
                self._report(NetworkEvent.PROVISION_FAILED, str(error)[:300])
                wait_s = backoff_s(failures, first_s=FIRST_RETRY_S, longest_s=LONGEST_RETRY_S)
            await asyncio.sleep(spread_s(wait_s, self._jitter()))
        self._report("", "")

    # ---- requests

    async def _get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        try:
            body = await self._client.request(
                "GET", resource.path(namespace or None, name), {}, limit_bytes=_MAX_BYTES
            )
        except ApiError as error:
            if error.status.code == 404:
                return None
            raise
        return _decoded(body)

    async def _act(self, action: Action) -> None:
        if not isinstance(action, Create | Patch | Delete):
            raise TypeError(action)
        request = request_of(action)
        await self._client.request(
            request.method, request.path, {}, request.body, content_type=request.content_type
        )

    async def _pods_of(self, network: str) -> NetworkPods:
        """One pod that uses the network and has not ended. Our own servers do not count."""
        others = f"{keys.MANAGED_BY} notin ({MANAGER})"
        selectors = [f"{keys.ARKTOS_NETWORK} in ({network}),{others}"]
        if network == keys.DEFAULT_NETWORK:
            selectors.append(f"!{keys.ARKTOS_NETWORK},{others}")
        for selector in selectors:
            params = {
                "labelSelector": selector,
                "fieldSelector": "status.phase!=Succeeded,status.phase!=Failed",
                "limit": "1",
            }
            body = await self._client.request("GET", PODS.path(), params, limit_bytes=_MAX_BYTES)
            items = _decoded(body).get("items")
            if isinstance(items, list) and items:
                meta = items[0].get("metadata") or {}
                return NetworkPods(f"{meta.get('namespace', '')}/{meta.get('name', '')}")
        return NetworkPods()

    # ---- reports

    async def _note(self, name: str, problems: tuple[Problem, ...]) -> None:
        """Report what has changed: to the operator, and in the tenant by an Event."""
        before = self._problems.get(name, ())
        if problems == before:
            return
        if problems:
            self._problems[name] = problems
        else:
            del self._problems[name]
        for problem in problems:
            if problem not in before:
                self._report(problem.reason, f"Network {name}: {problem.message}")
                await self._post(name, problem)
        if not self._problems:
            self._report("", "")

    async def _post(self, name: str, problem: Problem) -> None:
        cached = self._networks.objects.get(("", name))
        if cached is None or not self._may_write():
            return
        about = InvolvedObject("", name, cached.metadata.uid, NETWORK.kind, NETWORK.api_version)
        at = dt.datetime.fromtimestamp(self._wall(), dt.UTC)
        event = build_event(about, problem.reason, problem.message, EventSource(MANAGER, ""), at)
        try:
            await self._client.request("POST", EVENTS.path(event.namespace), {}, event.body)
        except (ApiError, UnreachableError) as error:
            _log.debug("Event not posted", network=name, error=str(error)[:200])


def _decoded(body: bytes) -> Object:
    try:
        return deep_json.decode(_OBJECT, body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UnreachableError("the answer is not JSON") from None
