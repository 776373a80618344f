# SPDX-License-Identifier: Apache-2.0
"""Publishes readings of tenants and pods to the shared state, and keeps the last good ones on disk.

Every reading goes through `publish_tenants` or `publish_pods`, which log each new problem once.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from daemonkit import logs
from daemonkit.tls.contexts import TlsError
from tenancy.ownership import Owned, OwnerIndex
from tenancy.registry import Problem, Registry, merge, present_in
from tenancy.removals import Distrust, evaluate
from vnagent.config import VnAgentConfiguration
from vnagent.core.source_status import Retained
from vnagent.saved_state import SavedState
from vnagent.state import AgentState
from vnagent.tenants.client_lists import ClientLists, retain_lists
from vnagent.tenants.reading import TenantsReading
from vnagent.tenants.rotation import OVERLAP_S, Rotation, dump_rotations, load_rotations
from vnagent.trust import spiffe_trust, tenants_context, tokens_context

TENANTS = "tenants"
PODS = "pods"
# The log names so many of the retained tenants; /status names all.
_MAX_NAMES = 10

_log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class _Published:
    """When something was published, and its age at that time. `is_saved`: it came from the disk."""

    at_s: float
    age_s: float = 0.0
    is_saved: bool = False


class Publisher:
    """Merges readings into what `state` serves. `saved` is None where nothing is kept on disk."""

    def __init__(
        self,
        config: VnAgentConfiguration,
        state: AgentState,
        saved: SavedState | None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._state = state
        self._saved = saved
        self._wall_clock = wall_clock
        self._published: dict[str, _Published] = {}
        self._reading: TenantsReading | None = None
        # A reading that waits for a usable serving certificate.
        self._unused: TenantsReading | None = None
        self._distrust: Distrust | None = None
        self._retained: frozenset[str] = frozenset()
        self._lists = ClientLists()

    # ---- the served objects

    def age_s(self, name: str) -> float | None:
        """Seconds since TENANTS or PODS were published, saved state with its age; None before that."""
        published = self._published.get(name)
        return None if published is None else published.age_s + self._now() - published.at_s

    def is_saved(self, name: str) -> bool:
        """Whether saved state is served, as the source has not synced yet."""
        published = self._published.get(name)
        return published is not None and published.is_saved

    @property
    def retained_sources(self) -> frozenset[str]:
        return self._retained

    @property
    def retained_lists(self) -> frozenset[str]:
        return self._lists.retained

    def retained(self) -> Retained | None:
        """The tenants and client lists that are served though their source lacks them."""
        lists = self._lists
        causes = ((self._distrust, self._retained), (lists.distrust, lists.retained))
        since = [distrust.since_s for distrust, sources in causes if distrust is not None and sources]
        if not since:
            return None
        # If the wall clock moved back, the time is clamped to zero.
        for_s = max(0.0, self._wall_clock() - min(since))
        return Retained(self._keys_of(self._retained), for_s, self._keys_of(lists.retained))

    def _keys_of(self, sources: frozenset[str]) -> tuple[str, ...]:
        served = self._state.registry.sources
        return tuple(sorted(served[source].key for source in sources if source in served))

    # ---- saved state

    def restore(self) -> None:
        """Serve the last good state until the sources have synced."""
        if self._saved is None:
            return
        tenants = self._saved.load_tenants(self._state.registry.spiffe)
        if tenants is not None and self._apply(tenants.value.registry, tenants.value.problems):
            self._distrust, self._lists = tenants.value.distrust, tenants.value.lists
            self._restored(TENANTS, tenants.age_s)
        pods = self._saved.load_pods()
        if pods is not None:
            self._state.serve_pods(pods.value, ())
            self._restored(PODS, pods.age_s)

    def _restored(self, name: str, age_s: float) -> None:
        self._published[name] = _Published(self._now(), age_s, is_saved=True)
        _log.warning("saved state is served until its source has synced", source=name, age_s=round(age_s))

    def saved_rotations(self) -> dict[str, Rotation]:
        """The certificates that were in rotation before the restart."""
        saved = None if self._saved is None else self._saved.load_rotations()
        if saved is None:
            return {}
        try:
            return load_rotations(saved, self._wall_minus_now(), self._now(), OVERLAP_S)
        except ValueError as error:
            _log.error("saved certificate rotations could not be read", reason=error)
            return {}

    def confirm_saved(self, name: str) -> None:
        """The source of TENANTS or PODS confirmed the served objects: update its age on disk."""
        if self._saved is None:
            return
        if name == TENANTS:
            self._saved.tenants_confirmed(self._state.registry, self._distrust, self._lists, is_new=False)
            self._confirm_rotations(is_new=False)
        else:
            self._saved.pods_confirmed(self._state.index, is_new=False)

    def _confirm_rotations(self, *, is_new: bool) -> None:
        reading = self._reading
        if self._saved is None or reading is None or self._config.tenants.kubeconfig_file is None:
            return
        self._saved.rotations_confirmed(
            lambda: dump_rotations(reading.rotations, self._wall_minus_now()), is_new=is_new
        )

    # ---- publishing

    def publish_tenants(self, reading: TenantsReading) -> bool:
        """Merge a complete reading of all tenants; False if trust could not be built from it."""
        before = self._state.registry
        known = self._state.tenant_problems
        now_s = self._wall_clock()
        removals = evaluate(
            frozenset(before.sources),
            present_in(before, reading.tenants),
            reading.deleted,
            self._distrust,
            now_s,
        )
        retained = {source: before.sources[source] for source in removals.retained}
        lists, tenants = retain_lists(self._lists, reading, removals.retained, now_s)
        registry, problems = merge(before, {**tenants, **retained})
        for problem in problems:
            if problem not in known:
                _log.error(
                    "tenant is invalid: correct its source",
                    source=problem.source,
                    tenant=problem.tenant,
                    reason=problem.reason,
                    keeps_last_good_state=problem.is_kept,
                )
        if not self._apply(registry, problems):
            self._unused = reading
            return False
        self._unused = None
        is_new = (registry, removals.distrust, lists) != (before, self._distrust, self._lists)
        has_new_rotations = self._reading is None or reading.rotations != self._reading.rotations
        self._report_removals("tenants", removals.retained, self._retained, len(before.sources))
        self._report_removals("client lists", lists.retained, self._lists.retained, len(self._lists.served))
        self._reading, self._retained, self._distrust = reading, removals.retained, removals.distrust
        self._lists = lists
        self._published[TENANTS] = _Published(self._now())
        if self._saved is not None:
            self._saved.tenants_confirmed(registry, removals.distrust, lists, is_new=is_new)
            self._confirm_rotations(is_new=has_new_rotations)
        return True

    def _report_removals(
        self, what: str, retained: frozenset[str], before: frozenset[str], known: int
    ) -> None:
        if retained and not before:
            self._state.metrics.distrusted_removals.inc()
            _log.error(
                "most tenants or client lists are missing from their source and stay served: restore the"
                " source, or run `vcnode tenant release`",
                what=what,
                missing=len(retained),
                known=known,
                sources=sorted(retained)[:_MAX_NAMES],
            )
        elif before and not retained:
            _log.info("nothing is retained any more", what=what)

    def publish_pods(self, pods: tuple[Owned, ...], problems: tuple[str, ...]) -> None:
        """Serve a complete reading of this node's tenant pods."""
        index = OwnerIndex(pods)
        claims = (f"{p.super_namespace}/{p.super_name}: claimed twice" for p in index.ambiguous)
        found = (*problems, *claims)
        for problem in found:
            if problem not in self._state.pod_problems:
                _log.warning("pod is not served", reason=problem)
        self._state.serve_pods(index, found)
        self._published[PODS] = _Published(self._now())
        if self._saved is not None:
            self._saved.pods_confirmed(index, is_new=True)

    def release_tenants(self) -> None:
        """Remove retained tenants and client lists: an operator confirms that their source is right."""
        reading, tenants, lists = self._reading, self._retained, self._lists.retained
        if reading is None or not (tenants or lists):
            _log.warning("no tenant is retained: there is nothing to release")
            return
        for what, retained in (("tenants", tenants), ("client lists", lists)):
            if retained:
                sources = sorted(retained)[:_MAX_NAMES]
                _log.warning(f"retained {what} are released", sources=sources, count=len(retained))
        self.publish_tenants(
            replace(
                reading,
                deleted=reading.deleted | tenants,
                deleted_lists=reading.deleted_lists | lists,
            )
        )

    # ---- trust

    def reload_trust(self) -> str | None:
        """Read the serving certificate and the SPIFFE authority again; return the problem, or None."""
        state = self._state
        try:
            registry = Registry(state.registry.sources, spiffe_trust(self._config))
        except TlsError as error:
            return str(error)
        if not self._apply(registry, state.tenant_problems):
            return "the serving certificate cannot be used"
        return None

    def publish_unused(self) -> bool:
        """Publish the reading that waited for a usable serving certificate; return whether that succeeded."""
        return self._unused is not None and self.publish_tenants(self._unused)

    def _apply(self, registry: Registry, problems: tuple[Problem, ...]) -> bool:
        """Serve trust and tenants together, or change nothing."""
        state = self._state
        try:
            context = tenants_context(self._config, registry.authorities())
            token_context = tokens_context(self._config)
        except TlsError as error:
            _log.error("trust could not be rebuilt; the last good one stays", reason=error)
            return False
        if context is None and state.context is not None:
            _log.warning("the last tenant was removed: every connection is refused")
        state.serve_tenants(registry, context, problems, token_context)
        return True

    def _now(self) -> float:
        return self._state.poller.loop.time()

    def _wall_minus_now(self) -> float:
        return self._wall_clock() - self._now()
