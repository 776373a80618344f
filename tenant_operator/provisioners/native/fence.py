# SPDX-License-Identifier: Apache-2.0
"""NetworkPolicies of a root namespace: whom the programs of a control plane may reach, and who reaches them.

A tenant makes its API server dial addresses of its choice: by webhooks, APIServices, conversions, proxies and
Nodes that it writes. All that is not named here is refused: the super cluster's API server, the address of
metadata (169.254.169.254), other control planes.

A NetworkPolicy never applies between a pod and the node that it runs on. So the kubelet's probes need no
rule, and what a node offers to its own pods must be protected by the node.
"""

from tenant_operator.datastores.port import Datastore
from tenant_operator.model import names, network_rules, pods
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.model.objects import Object

# Exposures that people reach from anywhere. Nodes may put their own address in the place of a client's.
_OPEN = ("NodePort", "LoadBalancer")


def network_policies(
    control_plane: ControlPlane, inputs: ManifestInputs, datastore: Datastore
) -> tuple[Object, ...]:
    """The fence of one control plane."""
    return (
        # Of pods that no other policy selects.
        network_rules.policy(control_plane, "default-deny", {}),
        network_rules.policy(
            control_plane,
            names.API_SERVER,
            pods.selector(names.API_SERVER),
            ingress=[_clients(control_plane, inputs)],
            egress=_destinations(control_plane, inputs, datastore),
        ),
        network_rules.policy(
            control_plane,
            names.CONTROLLER_MANAGER,
            pods.selector(names.CONTROLLER_MANAGER),
            egress=[
                network_rules.to_peers([network_rules.component(names.API_SERVER)], names.API_SERVER_PORT)
            ],
        ),
        *datastore.policies,
    )


def _clients(control_plane: ControlPlane, inputs: ManifestInputs) -> Object:
    """Its own controller manager and pods, the operator and the syncer, nodes, and clients outside of it."""
    if control_plane.exposure.type in _OPEN:
        return {"ports": [{"protocol": "TCP", "port": names.API_SERVER_PORT}]}
    peers = [
        network_rules.component(names.CONTROLLER_MANAGER),
        network_rules.tenant_pods(control_plane),
        network_rules.namespace(inputs.operator_namespace),
        *network_rules.blocks((*inputs.node_cidrs, *inputs.client_cidrs)),
    ]
    return network_rules.from_peers(peers, names.API_SERVER_PORT)


def _destinations(control_plane: ControlPlane, inputs: ManifestInputs, datastore: Datastore) -> list[Object]:
    found = [
        *datastore.apiserver_egress,
        network_rules.dns(inputs),
        network_rules.to_peers([network_rules.tenant_pods(control_plane)]),
    ]
    if inputs.node_cidrs:
        nodes = network_rules.blocks(inputs.node_cidrs)
        found.append(network_rules.to_peers(nodes, inputs.vn_agent_port))
    return found
