#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# On any machine, after try.sh: the commands with which the README explains what a tenant has there.
# shellcheck source=lab/provision/common.sh
. /vagrant/lab/provision/common.sh
export KUBECONFIG=/etc/kubernetes/admin.conf

if [ -e "$KUBECONFIG" ]; then
    for tenant in $TENANTS; do
        key=$(kubectl get virtualcluster "$tenant" --namespace "team-$tenant" --output 'jsonpath={.status.clusterNamespace}')
        step 'look: tenants' / "tenant-1-70b001-test=$key"
    done
    exit 0
fi
for key in $(vcnode guests --output wide | awk '$1 == "shop/client" { print $2 }'); do
    step 'look: services' / "tenant-1-70b001-test=$key"
    step 'look: names' / "tenant-1-70b001-test=$key"
done
