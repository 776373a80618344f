#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tenant.sh NAME, on the control machine: what a provisioner of VirtualClusters leaves for a tenant whose control plane runs.
# shellcheck source=lab/provision/common.sh
. /vagrant/lab/provision/common.sh
name=$1
pki=/etc/kubernetes/tenants/$name
export KUBECONFIG=/etc/kubernetes/admin.conf

retry 120 of "$name" get --raw /readyz
retry 60 of "$name" get serviceaccount default --namespace default
of "$name" apply -f /vagrant/packaging/rbac/options/vc-syncer-tenant.yaml

apply() {
    kubectl apply -f - <<END
$1
END
}
apply '{apiVersion: v1, kind: Namespace, metadata: {name: tenants}}'
retry 60 kubectl get virtualclusters.tenancy.x-k8s.io --namespace tenants
apply "{apiVersion: tenancy.x-k8s.io/v1alpha1, kind: VirtualCluster, metadata: {name: $name, namespace: tenants},
        spec: {clusterVersionName: lab, clusterDomain: cluster.local}}"
uid=$(kubectl get virtualcluster "$name" --namespace tenants --output 'jsonpath={.metadata.uid}')
# VirtualCluster's rule for the key of a cluster: docs/spec/virtualcluster.md.
key=tenants-$(printf %s "$uid" | sha256sum | cut -c 1-6)-$name
apply "{apiVersion: v1, kind: Namespace, metadata: {name: $key, annotations: {
        tenancy.x-k8s.io/vcname: $name, tenancy.x-k8s.io/vcnamespace: tenants, tenancy.x-k8s.io/vcuid: $uid,
        tenancy.x-k8s.io/vcrootns: 'true', vcnode.io/service-cidrs: $TENANT_SERVICE_CIDR}}}"
kubectl create secret generic admin-kubeconfig --namespace "$key" --from-file="admin-kubeconfig=$pki/vc-syncer.conf" \
    --dry-run=client --output yaml | kubectl apply -f -
kubectl patch virtualcluster "$name" --namespace tenants --subresource=status --type=merge \
    --patch "{\"status\": {\"phase\": \"Running\", \"clusterNamespace\": \"$key\"}}"

mkdir -p "$SHARED/tenants/$name"
cp "$pki/ca.crt" "$pki/apiserver-kubelet-client.crt" "$SHARED/tenants/$name"
echo "$key" >"$SHARED/tenants/$name/key"
