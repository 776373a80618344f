# SPDX-License-Identifier: Apache-2.0
"""A VirtualCluster as its users write it. Unknown fields are kept by the API server and not read here."""

import msgspec

from daemonkit.kube.resources import ObjectMeta
from tenancy import names
from tenancy.tenant import DEFAULT_CLUSTER_DOMAIN

DEFAULT_SERVICE_CIDR = "10.32.0.0/24"
# Upstream's certificates live as long, and nothing renewed them.
DEFAULT_PKI_DAYS = 365
MAX_PKI_DAYS = 3650
# Requests are names, times and tokens; a longer value is none, also once it is cut.
_MAX_ANNOTATION = 1024
_MAX_ANNOTATIONS = 64


class Meta(ObjectMeta, frozen=True, rename="camel"):
    """What the operator uses of the metadata, beyond what all do."""

    generation: int = 0
    finalizers: list[str] = msgspec.field(default_factory=list)
    creation_timestamp: str = ""


class SleepSchedule(msgspec.Struct, frozen=True, rename="camel"):
    """Two cron expressions of five fields, in a time zone of the IANA database."""

    sleep: str
    wake: str = ""
    time_zone: str = "UTC"


class SleepSpec(msgspec.Struct, frozen=True, rename="camel"):
    schedules: list[SleepSchedule] = []


class Exposure(msgspec.Struct, frozen=True, rename="camel"):
    """How people reach the API server from outside of the super cluster."""

    type: str = "ClusterIP"
    host_name: str = ""
    load_balancer_class: str = ""


class ImportRef(msgspec.Struct, frozen=True, rename="camel"):
    """A Secret in the VirtualCluster's namespace with the kubeconfig of a control plane that others made."""

    secret_name: str
    key: str = ""


class RestoreRef(msgspec.Struct, frozen=True, rename="camel"):
    """A backup that the VirtualCluster of this UID made, in the same namespace."""

    backup: str
    uid: str = ""


class VirtualClusterSpec(msgspec.Struct, frozen=True, rename="camel"):
    cluster_version_name: str = ""
    cluster_domain: str = DEFAULT_CLUSTER_DOMAIN
    service_cidr: str = DEFAULT_SERVICE_CIDR
    pki_expire_days: int = DEFAULT_PKI_DAYS
    class_: str = msgspec.field(name="class", default="")
    exposure: Exposure = Exposure()
    sleep: SleepSpec = SleepSpec()
    restore_from: RestoreRef | None = None
    import_: ImportRef | None = msgspec.field(name="import", default=None)
    volumes: str = "Delete"


class Condition(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One of ours has a type; the syncer's have none, and are known by their reason. All values are texts:
    vc-syncer
    reads them so."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class UpgradeStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The last upgrade: names of ClusterVersions. Until it is confirmed, one step back is possible."""

    from_: str = msgspec.field(name="from", default="")
    to: str = ""
    started_at: str = ""
    confirmed: bool = False


class RotationStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    what: str
    token: str = ""
    phase: str = ""
    waits_for: str = ""


class KeyStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is known of a Secret with keys, for the time when it is lost: `tokens` are those of the requests
    to rotate it that were made while it was there. No key can be found by its digest."""

    secret: str
    digest: str = ""
    key_ids: str = ""
    phase: str = ""
    token: str = ""
    tokens: list[str] = []


class BackupStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    name: str
    at: str = ""
    revision: int = 0
    bytes: int = 0
    location: str = ""
    phase: str = ""
    message: str = ""


class RestoreStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The last restore. `count` is of all that this tenant has had: each raises the revisions further.

    `hold`: the token by which vc-syncer holds deletions, until the annotation RELEASE_HELD is equal to it.
    """

    backup: str = ""
    phase: str = ""
    count: int = 0
    location: str = ""
    message: str = ""
    hold: str = ""


class SleepStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Since when the control plane has no pod."""

    since: str = ""
    why: str = ""


class RefusedRequest(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An annotation whose value asks for nothing, until it goes or changes. `message` has the remedy."""

    annotation: str
    digest: str = ""
    message: str = ""


class VirtualClusterStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    phase: str = ""
    cluster_namespace: str = ""
    message: str = ""
    reason: str = ""
    observed_generation: int = 0
    cluster_version: str = ""
    previous_cluster_version: str = ""
    kubernetes_version: str = ""
    endpoint: str = ""
    nodes_authority: str = ""
    conditions: list[Condition] = []
    upgrade: UpgradeStatus | None = None
    sleep: SleepStatus | None = None
    rotations: list[RotationStatus] = []
    rotated: dict[str, str] = {}
    """By what, the token of the last request that is complete."""
    keys: list[KeyStatus] = []
    backups: list[BackupStatus] = []
    restore: RestoreStatus | None = None
    refused_requests: list[RefusedRequest] = []


class VirtualCluster(msgspec.Struct, frozen=True):
    """The used part of a tenancy.x-k8s.io/v1alpha1 VirtualCluster."""

    metadata: Meta
    spec: VirtualClusterSpec = VirtualClusterSpec()
    status: VirtualClusterStatus = VirtualClusterStatus()

    @property
    def without_foreign_annotations(self) -> "VirtualCluster":
        """With those of vcnode.io alone, as there is one cache of all: others may have 256 KiB on each.

        A long value is cut, and not left out: who reads the requests refuses it, and the status says so.
        """
        own = sorted(
            (key, value[:_MAX_ANNOTATION])
            for key, value in self.metadata.annotations.items()
            if key.startswith("vcnode.io/")
        )
        metadata = msgspec.structs.replace(self.metadata, annotations=dict(own[:_MAX_ANNOTATIONS]))
        return msgspec.structs.replace(self, metadata=metadata)

    @property
    def key(self) -> str | names.Refused:
        """Its cluster key, which is also the name of its root namespace."""
        meta = self.metadata
        return names.cluster_key(meta.namespace, meta.name, meta.uid, self.status.cluster_namespace)
