# SPDX-License-Identifier: Apache-2.0
"""Upgrades interrupted and turned round in every state: the skew is never too large, and each ends well."""

import itertools

import msgspec
import pytest

from tenant_operator.life.upgrade import AppliedVersion, AppliedVersions, Versions, components
from tenant_operator.model.cluster_version import DatastoreSpec, Images, Release
from tenant_operator.model.virtual_cluster import UpgradeStatus

ETCD, API_SERVER, CONTROLLER_MANAGER = NAMES = ("etcd", "api_server", "controller_manager")


class Workload(msgspec.Struct, frozen=True):
    """What it was applied with, and of what its pods are: (version, emulated version)."""

    applied: tuple[str, str]
    pods: frozenset[tuple[str, str]]


class TenantState(msgspec.Struct, frozen=True):
    workloads: tuple[Workload, ...]
    target: str
    is_confirmed: bool = False


def release(minor: int, etcd: str) -> Release:
    version = f"1.{minor}.1"
    return Release(f"v{minor}", version, (1, minor, 1), etcd, Images(), DatastoreSpec(), {}, "small")


class Rollout:
    """All that can happen to a tenant between two releases."""

    def __init__(self, before: Release, after: Release) -> None:
        self.before, self.after = before, after
        self.releases = {each.name: each for each in (before, after)}

    @property
    def start(self) -> TenantState:
        one = Workload((self.before.name, ""), frozenset({(self.before.name, "")}))
        return TenantState((one,) * len(NAMES), self.after.name)

    def decided(self, state: TenantState) -> Versions:
        found = components(
            AppliedVersions(
                *(
                    AppliedVersion(*each.applied, each.pods == {each.applied}, each.pods != {each.applied})
                    for each in state.workloads
                )
            ),
            self.releases[state.target],
            UpgradeStatus(self.before.name, self.after.name, "", state.is_confirmed),
            self.releases,
        )
        assert isinstance(found, Versions)
        return found

    def applied(self, state: TenantState) -> TenantState:
        """What the operator writes. Of API server and controller manager, the first is rolled out first."""
        wanted = self.decided(state)
        workloads = list(state.workloads)
        for index, name in enumerate(NAMES):
            version: Release = getattr(wanted, name)
            is_emulating = (
                name != ETCD
                and wanted.emulated_version
                and not version.kubernetes_version.startswith(f"{wanted.emulated_version}.")
            )
            value = (version.name, wanted.emulated_version if is_emulating else "")
            was = workloads[index]
            if value != was.applied:
                workloads[index] = Workload(value, was.pods | {value})
            if workloads[index].pods != {value}:
                break  # the groups behind it wait
        return msgspec.structs.replace(state, workloads=tuple(workloads))

    def settled(self, state: TenantState, index: int) -> TenantState:
        workloads = list(state.workloads)
        workloads[index] = Workload(workloads[index].applied, frozenset({workloads[index].applied}))
        return msgspec.structs.replace(state, workloads=tuple(workloads))

    def next(self, state: TenantState) -> list[TenantState]:
        """The operator runs, a rollout ends, or a person changes the version or confirms."""
        found = [self.applied(state), *(self.settled(state, index) for index in range(len(NAMES)))]
        if not state.is_confirmed:
            other = self.before if state.target == self.after.name else self.after
            found.append(msgspec.structs.replace(state, target=other.name))
            if state.target == self.after.name and self.is_complete(state):
                found.append(msgspec.structs.replace(state, is_confirmed=True))
        return found

    def is_complete(self, state: TenantState) -> bool:
        return not self.decided(state).waits_for

    def states(self) -> set[TenantState]:
        seen, pending = {self.start}, [self.start]
        while pending:
            for each in self.next(pending.pop()):
                if each not in seen:
                    seen.add(each)
                    pending.append(each)
        return seen

    def ended(self, state: TenantState) -> TenantState:
        """With the operator and all rollouts going on, and nobody changing his mind."""
        for _ in range(12):
            state = self.applied(state)
            for index in range(len(NAMES)):
                state = self.settled(state, index)
        return state


def minor(version: tuple[str, str]) -> int:
    """What a pod serves: the emulated version."""
    return int(version[1].partition(".")[2]) if version[1] else int(version[0][1:])


def binary(version: tuple[str, str]) -> int:
    return int(version[0][1:])


ROLLOUTS = [
    Rollout(release(before, etcd), release(before + 1, etcd_after))
    for before in (33, 34)
    for etcd, etcd_after in (("3.7.3", "3.7.3"), ("3.7.3", "3.7.4"), ("3.6.16", "3.7.3"))
]


@pytest.mark.parametrize("rollout", ROLLOUTS)
def test_no_state_breaks_the_skew(rollout: Rollout) -> None:
    states = rollout.states()
    assert len(states) > 15
    for state in states:
        _, servers, managers = (each.pods for each in state.workloads)
        for manager, server in itertools.product(managers, servers):
            for version in (minor, binary):
                assert version(server) - 1 <= version(manager) <= version(server), state
        is_etcd_rolling, *others = (each.pods != {each.applied} for each in state.workloads)
        assert not (is_etcd_rolling and any(others)), state


@pytest.mark.parametrize("rollout", ROLLOUTS)
def test_every_state_ends_at_its_target(rollout: Rollout) -> None:
    for state in rollout.states():
        end = rollout.ended(state)
        target = rollout.releases[state.target]
        emulated = (
            "" if state.is_confirmed or target is rollout.before else rollout.before.kubernetes_version[:4]
        )
        etcd, servers, managers = (each.applied for each in end.workloads)
        assert servers == managers == (target.name, emulated)
        is_patch = rollout.before.etcd_version[:3] == rollout.after.etcd_version[:3]
        is_etcd_new = state.is_confirmed or (is_patch and target is rollout.after)
        assert etcd == ((rollout.after if is_etcd_new else rollout.before).name, "")
        assert rollout.is_complete(end)
        assert rollout.applied(end) == end
