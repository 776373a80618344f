# SPDX-License-Identifier: Apache-2.0
"""Which datastore a control plane has."""

from tenant_operator.datastores.etcd import etcd
from tenant_operator.datastores.port import Datastore
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs

_KINDS = {"etcd": etcd}


def datastore_of(control_plane: ControlPlane, inputs: ManifestInputs) -> Datastore:
    """The datastore that the ClusterVersion names."""
    kind = control_plane.release.datastore.type
    if kind in _KINDS:
        return _KINDS[kind](control_plane, inputs)
    remedy = f"spec.datastore.type is {kind!r}; use one of {', '.join(_KINDS)}"
    return Datastore(problem=f"ClusterVersion {control_plane.release.name}: {remedy}")
