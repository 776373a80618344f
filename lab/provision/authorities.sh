#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# On the control machine: authorities, a bundle for each worker, and what vcnode needs in the super cluster.
# shellcheck source=lab/provision/common.sh
. /vagrant/lab/provision/common.sh
export KUBECONFIG=/etc/kubernetes/admin.conf

apt-get install --yes /vagrant/dist/vcnode-common_*.deb /vagrant/dist/vcnode-cryptography_*.deb /vagrant/dist/vcnode-tools_*.deb
mkdir -p "$DESK/pki" "$SHARED"
chmod 700 "$DESK" "$SHARED"
ln -sfn /etc/kubernetes/pki/ca.crt "$DESK/pki/ca.crt"
ln -sfn /etc/kubernetes/pki/ca.key "$DESK/pki/ca.key"
# Kubelets' serving certificates are signed by the cluster's authority, too (serverTLSBootstrap).
ln -sfn /etc/kubernetes/pki/ca.crt "$DESK/pki/kubelet-ca.crt"
# As a site's administrator has them: with the site's images and ranges in the files.
rm -rf "$DESK/packaging" "$DESK/examples"
cp -R /vagrant/packaging /vagrant/examples "$DESK"
version=$(vcnode --version | sed 's/.* //')
sed -i "s|image: \(vcnode-.*\)|image: docker.io/library/\1:$version|" "$DESK"/packaging/*/deployment.yaml
sed -i "s|10\.96\.0\.0/16|$SERVICE_CIDR|; s|10\.244\.0\.0/16|$POD_CIDR|; s|192\.168\.0\.0/24|$NODE_CIDR|" \
    "$DESK/packaging/operator/deployment.yaml"
# dnsconfig gives pods their resolver, and each tenant gets a network with a DNS server.
sed -i "s|^    patrol: .*|&\n    pods: {dns: node}\n    networks: {installsDefinition: true, image: \"$COREDNS_IMAGE\", upstream: [$UPSTREAM_DNS]}|" \
    "$DESK/packaging/syncer/deployment.yaml"

step 'install: authorities' "$DESK"
for worker in $WORKERS; do
    IFS=, read -r name address _ <<END
$worker
END
    step 'install: bundle' "$DESK" "--node-name node-1=--tenants virtualclusters --node-name $name" "--out node-1=--out $name" \
        "10.0.0.11=$address" "10.0.0.1:=$CONTROL_ADDRESS:" "10.96.0.0/16=$SERVICE_CIDR"
    step 'install: cluster' "$DESK" "node-1=$name"
    rm -rf "${SHARED:?}/$name"
    mv "$DESK/$name" "$SHARED/$name"
done
