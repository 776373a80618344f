# SPDX-License-Identifier: Apache-2.0
"""An etcd that is full: it refuses writes until its file has been written anew and its alarm is disarmed.

etcd does neither by itself, though it compacts itself. When a store is not ready, its members are asked for
their alarms. If they lack space, Jobs make room: at once when something was deleted, or the quota has
changed, and now and then otherwise. The alarm is disarmed once the majority of the members has space.
"""

import math

from tenancy import keys
from tenant_operator.core import availability
from tenant_operator.core.backups import job_state
from tenant_operator.core.observed import Observed
from tenant_operator.core.plan import PlanBuilder
from tenant_operator.core.probes import StoreProbe
from tenant_operator.core.steps import Apply, Remove
from tenant_operator.core.workloads import Readiness, readiness_of
from tenant_operator.core.writes import apply_all
from tenant_operator.life import space_job, store_jobs
from tenant_operator.life.store_jobs import JobState
from tenant_operator.model import names, pods
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.model.objects import Object, Ref, ref_of

# While something is awaited.
_AWAITED_S = 1.0
# A store that is not ready may be back, or be written to by others.
_ASKED_S = 5.0
_LONGEST_S = 10.0
# An answer is used until the next one.
_KNOWN_S = 20.0
# After a try that made no room: etcd compacts each five minutes, and a try delays all requests.
_AGAIN_S = 300.0
# After one that failed, and after any: each writes the files of all members anew that answer.
_SOON_S = 60.0
_PAUSE_S = 20.0


def settle(
    builder: PlanBuilder, observed: Observed, control_plane: ControlPlane, inputs: ManifestInputs
) -> None:
    """Have the space freed of a store that is full; the condition tells what else can be done."""
    key = control_plane.key
    store = readiness_of(names.ETCD, observed.live("StatefulSet", key, names.ETCD))
    if control_plane.release.datastore.type != "etcd" or not _may_be_full(store):
        return
    probe = StoreProbe(key)
    left_s = availability.due_in_s(observed, probe.name, _ASKED_S, _ASKED_S, _LONGEST_S)
    if left_s == 0.0:
        builder.probes.append(probe)
    builder.look_again(left_s or _ASKED_S)
    revision = _revision(observed, probe)
    # While a file is written anew, nothing that needs the store is answered.
    if not (revision or _is_running(observed, key)):
        return
    quota = pods.memory_quantity(control_plane.size.etcd.quota_bytes)
    builder.block(
        "StoreRefusesWrites",
        f"etcd in namespace {key} is full and refuses writes: delete objects of the tenant, or give its "
        f"class more than quotaBytes {control_plane.size.etcd.quota_bytes} ({quota}) in ClusterVersion "
        f"{control_plane.release.name}; what is free then is given back by itself",
    )
    if revision:
        _free(builder, observed, control_plane, inputs, store, revision)


def _revision(observed: Observed, probe: StoreProbe) -> str:
    """Of a store that is full, as it was found a moment ago; else empty."""
    found = observed.probes.get(probe.name)
    if found is None or not 0 <= observed.now_s - found.at < _KNOWN_S:
        return ""
    return found.facts.get("revision", "")


def _is_running(observed: Observed, key: str) -> bool:
    jobs = (observed.live("Job", key, each) for each in (space_job.FREE_SPACE, space_job.DISARM))
    return any(live is not None and not _has_ended(job_state(observed, live)) for live in jobs)


def _has_ended(job: JobState) -> bool:
    return job.is_complete or job.is_failed


def _may_be_full(store: Readiness) -> bool:
    """Whether the majority of the store's pods is there, and too few are ready."""
    is_there = store.is_found and store.desired > 0 and store.replicas > store.desired // 2
    return is_there and not store.is_available


def _free(
    builder: PlanBuilder,
    observed: Observed,
    control_plane: ControlPlane,
    inputs: ManifestInputs,
    store: Readiness,
    revision: str,
) -> None:
    # Members that have a new quota take writes once the alarm is disarmed.
    state = f"{revision}.{control_plane.size.etcd.quota_bytes}.{store.updated}"
    apply_all(builder, observed, (store_jobs.network_policy(control_plane, inputs),))
    has_space = _have_space(observed, control_plane)
    if has_space and not _disarm(builder, observed, control_plane):
        return
    compaction = space_job.compact_job(control_plane, state, revision)
    if _run_once(builder, observed, compaction, failed_again_s=_AGAIN_S):
        failed_again_s = _AGAIN_S if has_space else _SOON_S
        members = space_job.free_space_job(control_plane, state)
        _run_once(builder, observed, members, failed_again_s=failed_again_s)


def _have_space(observed: Observed, control_plane: ControlPlane) -> bool:
    """Whether the last Job has written the files of the majority anew, though others did not answer."""
    live = observed.live("Job", control_plane.key, space_job.FREE_SPACE)
    if live is None or live.is_ending or not _has_ended(job_state(observed, live)):
        return False
    succeeded = int((live.value.get("status") or {}).get("succeeded", 0))
    return succeeded > control_plane.size.etcd.replicas // 2


def _disarm(builder: PlanBuilder, observed: Observed, control_plane: ControlPlane) -> bool:
    """Have the alarm disarmed, once after each Job that has given back space. Returns whether it was."""
    freed = observed.objects[Ref("Job", control_plane.key, space_job.FREE_SPACE)]
    manifest = space_job.disarm_job(control_plane, freed.metadata.uid)
    # The one before is replaced at once, whatever the clocks show.
    has_ended = _run_once(
        builder, observed, manifest, again_s=math.inf, failed_again_s=_SOON_S, pause_s=-math.inf
    )
    return has_ended and not job_state(observed, observed.objects[ref_of(manifest)]).is_failed


def _run_once(
    builder: PlanBuilder,
    observed: Observed,
    manifest: Object,
    *,
    failed_again_s: float,
    again_s: float = _AGAIN_S,
    pause_s: float = _PAUSE_S,
) -> bool:
    """Have the Job run, once for a state. Returns whether it has ended."""
    ref = ref_of(manifest)
    live = observed.objects.get(ref)
    if live is None:
        builder.steps.append(Apply(manifest))
        return False
    job = job_state(observed, live)
    if live.is_ending or not _has_ended(job):
        builder.look_again(_AWAITED_S)
        return False
    state = manifest["metadata"]["annotations"][keys.STORE_STATE]
    is_same = live.metadata.annotations.get(keys.STORE_STATE) == state
    after_s = (failed_again_s if job.is_failed else again_s) if is_same else pause_s
    if observed.now_s - job.ended_s >= after_s:
        builder.steps.append(Remove(ref, live.metadata.uid))
        return False
    return True
