# SPDX-License-Identifier: Apache-2.0
"""Which version each component of a control plane runs now, and whether another one is allowed. Pure.

Kubernetes' rules (its version skew policy), and what follows from them:

- The API server goes up by one minor version at a time, and first. The controller manager is never newer than
  the oldest API server, and at most one minor version older. So it goes up last, and down first.
- The new API server *emulates* the old minor version (`--emulated-version`, KEP-4330) until a person confirms
  the upgrade. Until then nothing is stored that the old one cannot read, and one step back is possible. The
  confirmation is written into the status before the emulation ends: from then on there is no way back.
- etcd moves alone, never in one step with the others. Another patch release of it comes first, and goes back
  last. Another minor version cannot be taken back: it comes last, after the confirmation.

Nothing is remembered: each workload shows which ClusterVersion it was applied with, and whether all its pods
are of it. So an upgrade that was interrupted goes on from there, or back.
"""

from collections.abc import Mapping

import msgspec

from tenant_operator.model.cluster_version import Release
from tenant_operator.model.problem import SpecProblem
from tenant_operator.model.virtual_cluster import UpgradeStatus

_FIELD = "spec.clusterVersionName"


class AppliedVersion(msgspec.Struct, frozen=True):
    """What a workload was applied with: a ClusterVersion, and the minor version that it emulates.

    `is_settled`: all its pods are of that, and ready. `is_rolling`: it has pods of what it was before, too.
    No `version`: there is no such workload.
    """

    version: str = ""
    emulated_version: str = ""
    is_settled: bool = False
    is_rolling: bool = False


class AppliedVersions(msgspec.Struct, frozen=True):
    etcd: AppliedVersion = AppliedVersion()
    api_server: AppliedVersion = AppliedVersion()
    controller_manager: AppliedVersion = AppliedVersion()


class AllowedUpgrade(msgspec.Struct, frozen=True):
    """`upgrade` is what the status must have before anything changes; None: it has no open upgrade."""

    reason: str
    message: str
    upgrade: UpgradeStatus | None = None


class Versions(msgspec.Struct, frozen=True):
    """What each component is to run now. `waits_for` names what must be done before the next step; empty when
    all run the wanted version.

    `emulated_version` is of API server and controller manager. Where it ends, the API server's pods are
    rolled out before the controller manager is applied, as always.
    """

    api_server: Release
    controller_manager: Release
    etcd: Release
    emulated_version: str = ""
    waits_for: str = ""
    reason: str = "UpToDate"


def judge(
    current: Release | None,
    target: Release,
    upgrade: UpgradeStatus | None,
    *,
    current_name: str,
    running_version: str,
    now: str,
) -> AllowedUpgrade | SpecProblem:
    """Whether the tenant may go to `target`, with the status that belongs to it.

    `current_name` and `running_version` are the status' ClusterVersion and Kubernetes version, empty before
    the first start. `current` is that ClusterVersion; None if it is not there.
    """
    if not current_name:
        return AllowedUpgrade("Installed", f"ClusterVersion {target.name} is installed")
    if current is None:
        return _problem(
            "ClusterVersionUnknown",
            f"the tenant runs ClusterVersion {current_name}, which does not exist any more",
            f"create it again; only then it is known what the tenant can go to from {running_version}",
        )
    if target.name == current_name:
        return _same(target, upgrade, running_version)
    if upgrade is not None and not upgrade.confirmed:
        return _while_open(current, target, upgrade)
    return _next(current, target, upgrade, now)


def _same(
    target: Release, upgrade: UpgradeStatus | None, running_version: str
) -> AllowedUpgrade | SpecProblem:
    """The ClusterVersion that the status has. Its object may have been edited."""
    running = _minor_of(running_version)
    if running is not None and running != target.version[:2]:
        return _problem(
            "ClusterVersionChanged",
            f"ClusterVersion {target.name} was {running_version}, and is {target.kubernetes_version} now",
            "undo the change, and create another ClusterVersion for the new version",
        )
    if upgrade is None or upgrade.to == target.name:
        return AllowedUpgrade("UpToDate", f"ClusterVersion {target.name} is installed", upgrade)
    message = f"the upgrade to ClusterVersion {upgrade.to} is taken back before it was complete"
    return AllowedUpgrade("RollingBack", message, upgrade)


def edit_problem(before: Release, after: Release) -> SpecProblem | None:
    """Why a ClusterVersion that tenants run may not become `after` under its name. None: it may."""
    parts = (
        ("kubernetesVersion", before.kubernetes_version, after.kubernetes_version),
        ("etcdVersion", before.etcd_version, after.etcd_version),
    )
    for field, old, new in parts:
        minors = _minor_of(old), _minor_of(new)
        if None not in minors and minors[0] != minors[1]:
            return _edited(before, f"spec.{field}", old, new)
    if before.datastore.type != after.datastore.type:
        return _edited(before, "spec.datastore.type", before.datastore.type, after.datastore.type)
    return None


def _edited(before: Release, field: str, old: str, new: str) -> SpecProblem:
    return SpecProblem(
        field,
        "ClusterVersionChanged",
        f"it was {old}, and is {new} now: the tenant stays at {old}",
        "undo the change, and create another ClusterVersion for the new version",
        of=f"ClusterVersion {before.name}",
    )


def _while_open(current: Release, target: Release, upgrade: UpgradeStatus) -> AllowedUpgrade | SpecProblem:
    if target.name == upgrade.to:
        return AllowedUpgrade("Upgrading", f"from ClusterVersion {upgrade.from_} to {target.name}", upgrade)
    if target.name == upgrade.from_:
        message = f"back from ClusterVersion {upgrade.to} to {target.name}"
        return AllowedUpgrade("RollingBack", message, upgrade)
    if current.name == upgrade.to and target.version[:2] == current.version[:2]:
        problem = _of_pair(current, target)
        if problem is not None:
            return problem
        changed = msgspec.structs.replace(upgrade, to=target.name)
        return AllowedUpgrade("Patching", f"from ClusterVersion {current.name} to {target.name}", changed)
    return _problem(
        "UpgradeUnconfirmed",
        f"the upgrade from ClusterVersion {upgrade.from_} to {upgrade.to} is not confirmed",
        f"confirm it, or set {_FIELD} to {upgrade.from_} to take it back; then upgrade to {target.name}",
    )


def _next(
    current: Release, target: Release, upgrade: UpgradeStatus | None, now: str
) -> AllowedUpgrade | SpecProblem:
    problem = _of_pair(current, target)
    if problem is not None:
        return problem
    is_patch = target.version[:2] == current.version[:2]
    if not is_patch and target.version < current.version:
        was_confirmed = upgrade is not None and upgrade.from_ == target.name
        done = "the upgrade is confirmed" if was_confirmed else "a control plane cannot go back"
        return _problem(
            "DowngradeRefused",
            f"from {current.kubernetes_version} to {target.kubernetes_version}: {done}",
            "restore a backup of that version into a new VirtualCluster",
        )
    if not is_patch and target.version[:2] != (current.version[0], current.version[1] + 1):
        between = f"{current.version[0]}.{current.version[1] + 1}"
        return _problem(
            "MinorVersionSkipped",
            f"from {current.kubernetes_version} to {target.kubernetes_version} skips a minor version",
            f"upgrade to a ClusterVersion of {between} first",
        )
    if not is_patch and target.upgrades_from and current.name not in target.upgrades_from:
        return _problem(
            "UpgradeNotListed",
            f"ClusterVersion {target.name} is reached from {', '.join(target.upgrades_from[:8])} only",
            f"upgrade to one of these first, or add {current.name} to its spec.upgradesFrom",
        )
    reason = "Patching" if is_patch else "Upgrading"
    # A patch release stores what the one before it does: there is nothing to confirm.
    started = UpgradeStatus(current.name, target.name, now, confirmed=is_patch)
    return AllowedUpgrade(reason, f"from ClusterVersion {current.name} to {target.name}", started)


def _of_pair(current: Release, target: Release) -> SpecProblem | None:
    """What speaks against this pair, whatever their Kubernetes versions."""
    if current.datastore.type != target.datastore.type:
        return _problem(
            "DatastoreChanged",
            f"the tenant's objects are in {current.datastore.type}, and ClusterVersion {target.name} has "
            f"{target.datastore.type}",
            "make a new VirtualCluster of it, and move the objects by their manifests",
        )
    before, after = _minor_of(current.etcd_version), _minor_of(target.etcd_version)
    if before is None or after is None:
        return None
    if after < before or after > (before[0], before[1] + 1):
        return _problem(
            "EtcdVersionSkipped",
            f"etcd goes up by one minor version at a time and never down: {current.etcd_version} to "
            f"{target.etcd_version}",
            f"set spec.etcdVersion of ClusterVersion {target.name} to one of {before[0]}.{before[1]} or "
            f"{before[0]}.{before[1] + 1}",
        )
    return None


def may_confirm(
    requested: str, upgrade: UpgradeStatus | None, applied: AppliedVersions, target: Release
) -> bool:
    """Whether the status is to have the upgrade confirmed now: a person asked for it, and it is complete."""
    if upgrade is None or upgrade.confirmed or not requested:
        return False
    is_complete = all(
        each.is_settled and each.version == target.name
        for each in (applied.api_server, applied.controller_manager)
    )
    return requested == upgrade.to == target.name and is_complete


def components(
    applied: AppliedVersions,
    target: Release,
    upgrade: UpgradeStatus | None,
    releases: Mapping[str, Release],
    *,
    is_asleep: bool = False,
) -> Versions | SpecProblem:
    """The next step to `target`, which `judge` has allowed, and whose `upgrade` the status has.

    `releases` are all that are known. While a tenant sleeps nothing of it changes: no pod would show whether
    the new version starts.
    """
    found = _resolved(applied, target, releases)
    if isinstance(found, SpecProblem):
        return found
    etcd, api_server, controller_manager = found
    emulated = _emulated(upgrade, releases, api_server)
    now = Versions(api_server, controller_manager, etcd, emulated)
    if is_asleep:
        is_new = etcd is target and api_server is target and controller_manager is target
        return now if is_new else _step(now, "Asleep", "the tenant to wake")
    is_down = max(api_server.version, controller_manager.version) > target.version
    for name in _ORDER[::-1] if is_down else _ORDER:
        if name == "etcd" and not _is_etcd_patch(etcd, target):
            continue
        step = _component_step(name, now, applied, target, upgrade, releases)
        if step.waits_for:
            return _one_at_a_time(name, step, now, applied)
        now = step
    if (
        now.etcd is not target
        and target.datastore.type == "etcd"
        and upgrade is not None
        and upgrade.confirmed
    ):
        return _one_at_a_time(
            "etcd", _component_step("etcd", now, applied, target, upgrade, releases), now, applied
        )
    return now


_ORDER = ("etcd", "api_server", "controller_manager")


def _one_at_a_time(name: str, step: Versions, now: Versions, applied: AppliedVersions) -> Versions:
    """The step, unless etcd and another one would be rolled out at once."""
    for other in _ORDER:
        rolling: AppliedVersion = getattr(applied, other)
        if rolling.is_rolling and other != name and "etcd" in (name, other):
            return _step(now, "ComponentUpdating", f"{_title(other)} to run ClusterVersion {rolling.version}")
    return step


def _component_step(
    name: str,
    now: Versions,
    applied: AppliedVersions,
    target: Release,
    upgrade: UpgradeStatus | None,
    releases: Mapping[str, Release],
) -> Versions:
    """One component runs the target; it is waited for unless all its pods do."""
    after = msgspec.structs.replace(now, **{name: target})
    after = msgspec.structs.replace(after, emulated_version=_emulated(upgrade, releases, after.api_server))
    if name == "etcd" and target.datastore.type != "etcd":
        return after  # kine goes with the API server, and a shared etcd is not ours
    was: AppliedVersion = getattr(applied, name)
    emulated = "" if name == "etcd" else emulated_by(target, after.emulated_version)
    is_applied = (was.version, was.emulated_version) == (target.name, emulated)
    if is_applied and was.is_settled:
        return after
    reason = "ComponentNotReady" if is_applied else "ComponentUpdating"
    return _step(after, reason, f"{_title(name)} to run ClusterVersion {target.name}")


def _title(name: str) -> str:
    return name.replace("_", " ")


def _step(versions: Versions, reason: str, waits_for: str) -> Versions:
    return msgspec.structs.replace(versions, reason=reason, waits_for=waits_for)


def _resolved(
    applied: AppliedVersions, target: Release, releases: Mapping[str, Release]
) -> tuple[Release, Release, Release] | SpecProblem:
    """What etcd, API server and controller manager were applied with. A missing one is made as the API server
    is, or is the target's."""
    known = {**releases, target.name: target}
    workloads = (applied.etcd, applied.api_server, applied.controller_manager)
    for each in workloads:
        if each.version and each.version not in known:
            return _problem(
                "ClusterVersionUnknown",
                f"a workload was applied with ClusterVersion {each.version}, which does not exist any more",
                "create it again: until then nothing of the control plane is changed",
            )
    fallback = applied.api_server.version or applied.controller_manager.version or target.name
    etcd, api_server, controller_manager = (known[each.version or fallback] for each in workloads)
    return etcd, api_server, controller_manager


def _emulated(upgrade: UpgradeStatus | None, releases: Mapping[str, Release], api_server: Release) -> str:
    """The minor version that the API server emulates: the older one's, until the upgrade is confirmed."""
    if upgrade is None or upgrade.confirmed:
        return ""
    before = releases.get(upgrade.from_)
    if before is None or before.version[:2] >= api_server.version[:2]:
        return ""
    return f"{before.version[0]}.{before.version[1]}"


def emulated_by(release: Release, emulated: str) -> str:
    """What a program of this release emulates: nothing, where that is its own minor version."""
    return emulated if emulated and _minor_of(emulated) != release.version[:2] else ""


def _is_etcd_patch(etcd: Release, target: Release) -> bool:
    """Whether etcd can go up and back: between two minor versions it cannot."""
    return _minor_of(etcd.etcd_version) == _minor_of(target.etcd_version)


def _minor_of(version: str) -> tuple[int, int] | None:
    parts = version.split(".")
    if len(parts) < 2 or not all(each.isascii() and each.isdigit() for each in parts[:2]):
        return None
    return int(parts[0]), int(parts[1])


def _problem(reason: str, message: str, remedy: str) -> SpecProblem:
    return SpecProblem(_FIELD, reason, message, remedy)
