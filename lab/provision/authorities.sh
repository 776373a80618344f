#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# On the control machine: authorities, a bundle for each worker, and what vcnode needs in the super cluster.
# shellcheck source=lab/provision/common.sh
. /vagrant/lab/provision/common.sh
export KUBECONFIG=/etc/kubernetes/admin.conf

apt-get install --yes /vagrant/dist/vcnode-common_*.deb /vagrant/dist/vcnode-cryptography_*.deb /vagrant/dist/vcnode-tools_*.deb
mkdir -p "$DESK/pki" "$SHARED"
chmod 700 "$DESK" "$SHARED"
ln -sfn /vagrant/packaging "$DESK/packaging"
ln -sfn /etc/kubernetes/pki/ca.crt "$DESK/pki/ca.crt"
ln -sfn /etc/kubernetes/pki/ca.key "$DESK/pki/ca.key"
# Kubelets' serving certificates are signed by the cluster's authority, too (serverTLSBootstrap).
ln -sfn /etc/kubernetes/pki/ca.crt "$DESK/pki/kubelet-ca.crt"

step authorities "$DESK"
for worker in $WORKERS; do
    IFS=, read -r name address _ <<END
$worker
END
    step bundle "$DESK" -e "s/node-1/$name/g; s/10\.0\.0\.11/$address/; s/10\.0\.0\.1:/$CONTROL_ADDRESS:/; s|10\.96\.0\.0/16|$SERVICE_CIDR|"
    step cluster "$DESK" -e "s/node-1/$name/g"
    rm -rf "${SHARED:?}/$name"
    mv "$DESK/$name" "$SHARED/$name"
done
