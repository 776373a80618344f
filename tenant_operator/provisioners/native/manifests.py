# SPDX-License-Identifier: Apache-2.0
"""All objects of a control plane, in order."""

from tenant_operator.datastores.choice import datastore_of
from tenant_operator.model import names
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.provisioners.native import api_server, controller_manager
from tenant_operator.provisioners.native.fence import network_policies
from tenant_operator.provisioners.native.network import network
from tenant_operator.provisioners.port import Group

DATASTORE = "datastore"


def groups(control_plane: ControlPlane, inputs: ManifestInputs) -> tuple[Group, ...]:
    """The network, the datastore, the API server, the controller manager.

    The controller manager is never newer than an API server: it waits until the last old one has ended.
    """
    datastore = datastore_of(control_plane, inputs)
    components = (names.API_SERVER, *((names.ETCD,) if control_plane.has_own_store else ()))
    fence = network_policies(control_plane, inputs, datastore)
    settings = api_server.config_map(control_plane)
    return (
        Group("network", (*network(control_plane, components), *fence, settings), waits=False),
        Group(DATASTORE, datastore.manifests, waits=True),
        Group("apiserver", (api_server.deployment(control_plane, inputs, datastore),), waits=True),
        Group("controller-manager", (controller_manager.deployment(control_plane, inputs),), waits=True),
    )
