# SPDX-License-Identifier: Apache-2.0
"""One etcd for several tenants: a user and a prefix for each.

An older etcd lets each user compact, hide alarms and end leases of all (CVE-2026-33413, CVE-2026-44283): one
tenant's credential is the end of the others' service. All still share one quota, and a credential of one may
revoke leases of another that have no key.
"""

from tenant_operator.datastores.port import Datastore
from tenant_operator.model import names, network_rules
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.model.pods import Files


def shared_etcd(control_plane: ControlPlane, inputs: ManifestInputs) -> Datastore:
    """The credential is names.STORE_CREDENTIALS in the root namespace: `tls.crt`, whose common name is the
    etcd user, `tls.key`, `ca.crt`. The user's role has the prefix with its slash at the end: without it, the
    user also has what other tenants keep under prefixes that begin alike.
    """
    if not (inputs.store_endpoints and inputs.store_cidrs):
        return Datastore(
            problem=f"ClusterVersion {control_plane.release.name}: spec.datastore.type is shared-etcd, and"
            " vc-operator's configuration has no sharedEtcd.endpoints"
        )
    files = Files("Secret", names.STORE_CREDENTIALS, ("tls.crt", "tls.key", "ca.crt"))
    return Datastore(
        apiserver_flags={
            "etcd-servers": ",".join(inputs.store_endpoints),
            "etcd-prefix": f"/{control_plane.key}",
            "etcd-cafile": files.path("ca.crt"),
            "etcd-certfile": files.path("tls.crt"),
            "etcd-keyfile": files.path("tls.key"),
            # etcd compacts by itself. The key by which API servers agree to do it is outside of each prefix.
            "etcd-compaction-interval": "0",
        },
        apiserver_files=(files,),
        apiserver_digests=(names.STORE_CREDENTIALS,),
        apiserver_egress=(network_rules.to_peers(network_rules.blocks(inputs.store_cidrs), names.ETCD_PORT),),
        secrets=(names.STORE_CREDENTIALS,),
    )
