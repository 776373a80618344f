# SPDX-License-Identifier: Apache-2.0
"""What only a question to a running part can tell. A plan asks for probes; the next one has their results."""

import msgspec

from tenant_operator.model.objects import Ref
from tenant_operator.model.virtual_cluster import ImportRef


class ReadyzProbe(msgspec.Struct, frozen=True):
    """GET /readyz of the tenant's API server, verified by its authority. It needs no credentials."""

    server: str
    bundle_pem: bytes

    @property
    def name(self) -> str:
        return "readyz"


class SyncerProbe(msgspec.Struct, frozen=True):
    """Whether vc-syncer has made the tenant's super namespace `default`, for this UID."""

    super_namespace: str
    uid: str

    @property
    def name(self) -> str:
        return "syncer"


NODES_PODS = "pods"
"""Key of the facts of `NodesProbe`."""


class NodesProbe(msgspec.Struct, frozen=True):
    """Whether vn-agents on the nodes know the certificate that the tenant's API server shows them.

    `pods` identifies the tenant's pods that were replaced before it is asked, and is in the facts.
    """

    client: Ref
    port: int
    authority_pem: bytes
    pods: str = ""

    @property
    def name(self) -> str:
        return "nodes"


class NamespacesProbe(msgspec.Struct, frozen=True):
    """Which super namespaces a tenant has: the facts have the UID of each, empty for one that is ending."""

    key: str
    uid: str

    @property
    def name(self) -> str:
        return "namespaces"


class SourceProbe(msgspec.Struct, frozen=True):
    """Whether the control plane can be adopted whose kubeconfig a VirtualCluster imports."""

    reference: ImportRef
    namespace: str
    virtual_cluster: str

    @property
    def name(self) -> str:
        return "import"


class JobLogProbe(msgspec.Struct, frozen=True):
    """The log of container `verify` of the pod by which a Job of this UID is complete: the facts have its
    `text`, and the `uid` of the Job."""

    job: Ref
    uid: str

    @property
    def name(self) -> str:
        return "job-log"


class RotationProbe(msgspec.Struct, frozen=True):
    """Which of the keys in a Secret its consumers use, and by which they verify.

    `version` is of the Secret: an answer from before its last step does not count. The facts have answers.
    `files`: by component the digest of files that its pods have read if they are of the present template.
    `nodes`: where vn-agents are to be asked.
    """

    what: str
    secret: Ref
    version: str
    files: dict[str, str] = {}
    nodes: NodesProbe | None = None

    @property
    def name(self) -> str:
        return f"rotation/{self.what}"


class ServerPodsProbe(msgspec.Struct, frozen=True):
    """Whether no pod of the tenant's API server is left: the status of a Deployment counts none that is
    ending."""

    key: str

    @property
    def name(self) -> str:
        return "server-pods"


class StoreProbe(msgspec.Struct, frozen=True):
    """Whether a tenant's etcd has space. The facts have the `revision` of one that is full."""

    key: str

    @property
    def name(self) -> str:
        return "store"


class ServedProbe(msgspec.Struct, frozen=True):
    """Which certificate each API server shows: the facts have that of each pod, as base64 of its DER."""

    key: str

    @property
    def name(self) -> str:
        return "served"


TenantProbe = (
    ReadyzProbe
    | ServedProbe
    | SyncerProbe
    | NodesProbe
    | NamespacesProbe
    | SourceProbe
    | JobLogProbe
    | RotationProbe
    | ServerPodsProbe
    | StoreProbe
)
