#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# On the control machine: vc-syncer from its package, what tenants may send down, and the guests' RuntimeClass.
# shellcheck source=lab/provision/common.sh
. /vagrant/lab/provision/common.sh
export KUBECONFIG=/etc/kubernetes/admin.conf
cd "$DESK"

kubectl apply -f packaging/namespace/namespace.yaml -f packaging/crds/syncpolicies.yaml -f packaging/rbac/vc-syncer-policy.yaml
retry 60 kubectl get syncpolicies.vcnode.io --namespace tenants
kubectl apply -f - <<END
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: kata, labels: {tenancy.x-k8s.io/super.public: "true"}}
handler: kata
---
apiVersion: vcnode.io/v1alpha1
kind: SyncPolicy
metadata: {name: default, namespace: tenants}
spec: {pods: {runtimeClasses: [kata], imagePull: AsWritten}} # nodes have the images, also without a registry
END

apt-get install --yes /vagrant/dist/vcnode-common_*.deb /vagrant/dist/vcnode-syncer_*.deb
vcnode init bundle --out syncer --node-name "$CONTROL" --server "https://$CONTROL_ADDRESS:6443" --daemons vc-syncer \
    --super-ca pki/ca.crt --client-ca pki/ca.crt --client-ca-key pki/ca.key
kubectl apply -f syncer/rbac
vcnode init node --bundle syncer
rm -r syncer
if ! grep -q '^networks:' /etc/vcnode/vc-syncer.yaml; then
    cat >>/etc/vcnode/vc-syncer.yaml <<END

# Of the lab: guests have a RuntimeClass, dnsconfig gives pods their resolver, and each tenant gets a network with a DNS server.
resources: [runtimeclass]
pods: {dns: node}
networks: {installsDefinition: true, image: "$COREDNS_IMAGE", upstream: [$UPSTREAM_DNS]}
END
fi
systemctl enable --now vc-syncer
retry 60 vcnode status
# As a pod it would be the second one: its objects are valid, and not made.
step syncer "$DESK" -e 's/kubectl apply/kubectl apply --dry-run=server/'
