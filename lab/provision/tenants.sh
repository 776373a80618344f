#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# On the control machine, when the workers are there: vc-syncer and vc-operator, and the lab's tenants. The first one is
# made by the README's commands as they stand, the others by the same with other names.
# shellcheck source=lab/provision/common.sh
. /vagrant/lab/provision/common.sh
export KUBECONFIG=/etc/kubernetes/admin.conf

step 'tenant: install' "$DESK"
kubectl apply -f - <<END
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: kata, labels: {tenancy.x-k8s.io/super.public: "true"}}
handler: kata
END
for tenant in $TENANTS; do
    if [ "$tenant" = acme ]; then
        step 'tenant: create' "$DESK"
    else
        step 'tenant: create' "$DESK" "acme=$tenant"
    fi
    kubectl apply -f - <<END
apiVersion: vcnode.io/v1alpha1
kind: SyncPolicy
metadata: {name: default, namespace: team-$tenant}
spec: {pods: {runtimeClasses: [kata], imagePull: AsWritten}} # nodes have the images, also without a registry
END
done
