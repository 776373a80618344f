# SPDX-License-Identifier: Apache-2.0
"""The wire strings are other programs' too: each is written out here once more."""

from tenancy import keys


def test_keys_are_those_of_virtualcluster_and_arktos() -> None:
    assert {name: getattr(keys, name) for name in vars(keys) if name.isupper()} == {
        "TENANCY_PREFIX": "tenancy.x-k8s.io/",
        "TRANSPARENT_PREFIX": "transparency.tenancy.x-k8s.io/",
        "CLUSTER": "tenancy.x-k8s.io/cluster",
        "NAMESPACE": "tenancy.x-k8s.io/namespace",
        "UID": "tenancy.x-k8s.io/uid",
        "OWNER_REFERENCES": "tenancy.x-k8s.io/ownerReferences",
        "VC_NAME": "tenancy.x-k8s.io/vcname",
        "VC_NAMESPACE": "tenancy.x-k8s.io/vcnamespace",
        "VC_UID": "tenancy.x-k8s.io/vcuid",
        "VC_ROOT_NAMESPACE": "tenancy.x-k8s.io/vcrootns",
        "CLUSTER_IP": "tenancy.x-k8s.io/clusterIP",
        "SUPER_CLUSTER_IP": "transparency.tenancy.x-k8s.io/clusterIP",
        "SECRET_NAME": "tenancy.x-k8s.io/secret.name",
        "SECRET_UID": "tenancy.x-k8s.io/secret.UID",
        "ADMIN_KUBECONFIG": "tenancy.x-k8s.io/admin-kubeconfig",
        "SECRET_ADMIN_KUBECONFIG": "tenancy.x-k8s.io/secret.admin-kubeconfig",
        "CONTROLLED": "tenancy.x-k8s.io/controlled",
        "SUPER_PUBLIC": "tenancy.x-k8s.io/super.public",
        "VIRTUAL_NODE": "tenancy.x-k8s.io/virtualnode",
        "SUPER_CLUSTER_ID": "tenancy.x-k8s.io/superclusterid",
        "ARKTOS_NETWORK": "arktos.futurewei.com/network",
        "DEFAULT_NETWORK": "default",
        "NETWORK_READINESS": "arktos.futurewei.com/network-readiness",
        "CONTAINERS": "vcnode.io/containers",
        "MOUNTED_LABELS": "vcnode.io/tenant-labels",
        "MOUNTED_ANNOTATIONS": "vcnode.io/tenant-annotations",
        "MOUNTED_METADATA_PREFIX": "tenant-metadata.vcnode.io/",
        "SCHEDULING_GATES": "vcnode.io/scheduling-gates",
        "REQUIRED_PLUGINS": "required-plugins.noderesource.dev",
        "SYNC_WEIGHT": "vcnode.io/sync-weight",
        "SYNC_POLICY": "vcnode.io/sync-policy",
        "GATE_OPENED": "vcnode.io/gate-opened",
        "SERVICE_CIDRS": "vcnode.io/service-cidrs",
        "API_VERSION": "vcnode.io/v1alpha1",
        "TENANT_KIND": "Tenant",
    }
