# SPDX-License-Identifier: Apache-2.0
"""An etcd of the tenant's own, with one member or three.

Members know each other by the names that the headless Service gives them, never by a pod's address: a pod
that is rescheduled is the same member.
"""

import msgspec

from tenant_operator.datastores import members
from tenant_operator.datastores.port import Datastore
from tenant_operator.model import names, pods
from tenant_operator.model.cluster_version import ComponentSize
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.model.objects import Object

_METRICS_PORT = 2381
_STATE = "initial-cluster-state"
_INITIAL_CLUSTER = "--initial-cluster="


def etcd(control_plane: ControlPlane, inputs: ManifestInputs) -> Datastore:
    """The default datastore."""
    count = _count(control_plane, inputs)
    config = _config(control_plane, inputs, count)
    found = members.datastore(control_plane, inputs, _container(control_plane, count), count, config)
    # etcd compacts by itself. With an interval the API server would read a key each second.
    found.apiserver_flags["etcd-compaction-interval"] = "0"
    return found


def _count(control_plane: ControlPlane, inputs: ManifestInputs) -> int:
    """As the class has it when the store is made, and as many ever after.

    Members that are taken away by their number alone take the majority with them, and one that is added so is
    refused by the others.
    """
    return inputs.store_members or control_plane.size.etcd.replicas


def _config(control_plane: ControlPlane, inputs: ManifestInputs, count: int) -> Object:
    """Read at a pod's start, so that a change of it restarts no member.

    `new` makes an empty cluster. Once all members were ready, none may start so again: its tenant would seem
    to have deleted everything. A member without a volume starts empty each time, which is what labs ask for
    with the size "".
    """
    is_kept = control_plane.release.datastore.size != ""
    state = "existing" if inputs.has_started_store and is_kept else "new"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": pods.metadata(control_plane, names.ETCD_CONFIG, names.ETCD),
        "data": {_STATE: state, names.ETCD_MEMBERS_KEY: str(count)},
    }


def _container(control_plane: ControlPlane, count: int) -> Object:
    release = control_plane.etcd_release or control_plane.release
    port = "metrics"
    return pods.container(
        names.ETCD,
        release.images.etcd,
        _size(control_plane),
        command=["etcd"],
        args=pods.flags(_flags(control_plane, count)),
        env=[
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {
                "name": "ETCD_INITIAL_CLUSTER_STATE",
                "valueFrom": {"configMapKeyRef": {"name": names.ETCD_CONFIG, "key": _STATE}},
            },
        ],
        mounts=[pods.FILES_MOUNT, members.DATA_MOUNT],
        ports={"client": names.ETCD_PORT, "peer": names.ETCD_PEER_PORT, port: _METRICS_PORT},
        probes={
            # A member replays its log first: up to ten minutes.
            "startupProbe": pods.probe("/readyz", port, scheme="HTTP", period_s=1, failures=600),
            # Not /readyz: only /health has the alarm of a store that is full, which refuses all writes.
            "readinessProbe": pods.probe("/health", port, scheme="HTTP", period_s=3, failures=2),
            "livenessProbe": pods.probe("/livez", port, scheme="HTTP", period_s=10, failures=8),
        },
    )


def members_of(stateful_set: Object) -> int:
    """How many members a StatefulSet was made for, of 1 or 3; 0 for another one."""
    containers = stateful_set["spec"].get("template", {}).get("spec", {}).get("containers", [])
    found = {
        each.count(",") + 1
        for container in containers
        for each in container.get("args", [])
        if each.startswith(_INITIAL_CLUSTER)
    }
    return found.pop() if found in ({1}, {3}) else 0


def _size(control_plane: ControlPlane) -> ComponentSize:
    """With room in memory for all that the quota admits, twice, unless the class limits it.

    To give back space etcd writes up to 10 000 objects in one transaction, and it has the last 5 000 writes
    in memory. An etcd that ends in the middle of that stays full for ever.
    """
    size = control_plane.size.etcd
    if size.go_memory_limit:
        return size
    most = 2 * pods.memory_bytes(size.memory) + 2 * size.quota_bytes
    return msgspec.structs.replace(size, go_memory_limit=str(int(most * pods.RUNTIME_SHARE)))


def _flags(control_plane: ControlPlane, count: int) -> dict[str, str]:
    own = f"$(POD_NAME).{names.ETCD}.{control_plane.key}.svc"
    hosts = members.member_hosts(control_plane, count)
    peers = ",".join(f"{each.split('.', 1)[0]}=https://{each}:{names.ETCD_PEER_PORT}" for each in hosts)
    pair, authority = members.SERVER_PAIR, members.AUTHORITY
    return {
        "name": "$(POD_NAME)",
        "data-dir": members.DATA_DIRECTORY,
        "listen-client-urls": f"https://0.0.0.0:{names.ETCD_PORT}",
        "listen-peer-urls": f"https://0.0.0.0:{names.ETCD_PEER_PORT}",
        # Plain, and without any key's content: for probes alone.
        "listen-metrics-urls": f"http://0.0.0.0:{_METRICS_PORT}",
        "advertise-client-urls": f"https://{own}:{names.ETCD_PORT}",
        "initial-advertise-peer-urls": f"https://{own}:{names.ETCD_PEER_PORT}",
        "initial-cluster": peers,
        # Members of two control planes never join each other.
        "initial-cluster-token": control_plane.uid,
        "client-cert-auth": "true",
        "trusted-ca-file": authority.path(names.ETCD_BUNDLE),
        "cert-file": pair.path("tls.crt"),
        "key-file": pair.path("tls.key"),
        "peer-client-cert-auth": "true",
        "peer-trusted-ca-file": authority.path(names.ETCD_BUNDLE),
        "peer-cert-file": pair.path("tls.crt"),
        "peer-key-file": pair.path("tls.key"),
        # The other members' pair, and not the API server's, which is of the same authority.
        "peer-cert-allowed-cn": names.ETCD,
        # Else etcd looks up each name of a certificate, and refuses a member while DNS has its former
        # address.
        "peer-skip-client-san-verification": "true",
        "auto-compaction-mode": "periodic",
        "auto-compaction-retention": "5m",
        "snapshot-count": "5000",
        # Each watch of the API server learns revisions that did not concern it.
        "watch-progress-notify-interval": "5s",
        "quota-backend-bytes": str(control_plane.size.etcd.quota_bytes),
    }
