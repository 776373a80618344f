# SPDX-License-Identifier: Apache-2.0
"""Which datastore a control plane has."""

from tenant_operator.datastores.etcd import etcd
from tenant_operator.datastores.kine_postgresql import kine_postgresql
from tenant_operator.datastores.kine_sqlite import kine_sqlite
from tenant_operator.datastores.port import Datastore
from tenant_operator.datastores.shared_etcd import shared_etcd
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs

_TYPES = {
    "etcd": etcd,
    "kine-sqlite": kine_sqlite,
    "kine-postgresql": kine_postgresql,
    "shared-etcd": shared_etcd,
}


def datastore_of(control_plane: ControlPlane, inputs: ManifestInputs) -> Datastore:
    """The datastore that the ClusterVersion names. Of other types there is no release."""
    return _TYPES[control_plane.release.datastore.type](control_plane, inputs)
