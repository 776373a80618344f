# SPDX-License-Identifier: Apache-2.0
"""A plan: the next steps for one VirtualCluster, and what its status is to have."""

from collections.abc import Mapping

import msgspec

from tenant_operator.core.conditions import ConditionType, Finding, fails
from tenant_operator.core.probes import TenantProbe
from tenant_operator.core.steps import OperatorStep
from tenant_operator.defaults.desired import ManifestFile
from tenant_operator.model.virtual_cluster import (
    BackupStatus,
    KeyStatus,
    RefusedRequest,
    RestoreStatus,
    RotationStatus,
    SleepStatus,
    UpgradeStatus,
)


class Settings(msgspec.Struct, frozen=True):
    """What the operator's configuration says for all tenants."""

    vn_agent_port: int = 10550
    vn_agent_authority_pem: bytes = b""
    namespace: str = "vcnode-system"
    service_cidrs: tuple[str, ...] = ()
    pod_cidrs: tuple[str, ...] = ()
    node_cidrs: tuple[str, ...] = ()
    dns_cidrs: tuple[str, ...] = ()
    client_cidrs: tuple[str, ...] = ()
    store_cidrs: tuple[str, ...] = ()
    store_endpoints: tuple[str, ...] = ()
    max_rolling: int = 5
    max_starting: int = 4
    builtin: Mapping[str, ManifestFile] = {}


class TenantPlan(msgspec.Struct, frozen=True):
    """`steps` in this order; those after one that fails are not taken.

    `waits_for` names the one object that the next step needs; empty if nothing is to be done.
    `check_again_s`: plan
    again after this time, though nothing changed. Fields of the status that are None stay as they are.
    `takes_place`: it is one of `max_rolling` from now on; `waits_for_place`: it would be. `is_starting`,
    `waits_to_start`: the same of `max_starting`. `is_down`: its control plane should serve, and does not.
    """

    steps: tuple[OperatorStep, ...] = ()
    probes: tuple[TenantProbe, ...] = ()
    findings: tuple[Finding, ...] = ()
    waits_for: str = ""
    check_again_s: float | None = None
    phase: str | None = None
    key: str | None = None
    endpoint: str | None = None
    cluster_version: str | None = None
    kubernetes_version: str | None = None
    sleep: SleepStatus | msgspec.UnsetType | None = msgspec.UNSET
    upgrade: UpgradeStatus | None = None
    backups: tuple[BackupStatus, ...] | None = None
    rotations: tuple[RotationStatus, ...] | None = None
    rotated: dict[str, str] | None = None
    keys: tuple[KeyStatus, ...] | None = None
    restore: RestoreStatus | None = None
    nodes_authority: str | None = None
    refused_requests: tuple[RefusedRequest, ...] | None = None
    takes_place: bool = False
    waits_for_place: bool = False
    is_starting: bool = False
    waits_to_start: bool = False
    is_down: bool = False


class PlanBuilder:
    """A plan that is being made: each stage adds to it, and the first that has to wait ends it."""

    def __init__(self) -> None:
        self.steps: list[OperatorStep] = []
        self.probes: list[TenantProbe] = []
        self.findings: list[Finding] = []
        self.rotations: tuple[RotationStatus, ...] | None = None
        self.rotated: dict[str, str] | None = None
        self.waits_for = ""
        self.blocked: Finding | None = None
        self.is_lost = False
        self.check_again_s: float | None = None
        self.takes_place = False
        self.is_rolling = False
        self.is_starting = False
        self.waits_to_start = False
        self.held: Finding | None = None
        """Why its pods are not replaced yet."""
        self.has_applied_all = False
        """Whether each of its objects is as it should be by the present settings."""
        self.late: Finding | None = None
        """Why others need not wait for it any more."""

    def wait(self, what: str) -> None:
        """Nothing that follows can be done before `what`."""
        self.waits_for = self.waits_for or what

    def block(self, reason: str, message: str) -> None:
        """A person has to act: the condition of the control plane has it, in the place of what pods lack."""
        self.blocked = fails(ConditionType.CONTROL_PLANE_AVAILABLE, reason, message)
        self.wait(message)

    def lose(self, finding: Finding) -> None:
        """What the control plane is made of is lost: that goes before all that pods lack, or have still."""
        self.blocked, self.is_lost = finding, True
        self.wait(finding.message)

    def look_again(self, seconds: float) -> None:
        """TenantPlan again by then at the latest."""
        known = self.check_again_s
        self.check_again_s = seconds if known is None else min(known, seconds)
