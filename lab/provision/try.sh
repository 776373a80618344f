#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# On the control machine: both tenants do the same, under the same names, and each sees its own.
# shellcheck source=lab/provision/common.sh
. /vagrant/lab/provision/common.sh
export KUBECONFIG=/etc/kubernetes/admin.conf

# says EXPECTED COMMAND...: whether a line of its output is that. The whole output is shown, in any case.
says() {
    expected=$1
    shift
    output=$("$@" 2>&1) || true
    printf '%s\n' "$output" | tee /dev/stderr | grep -qxF "$expected"
}

for tenant in $TENANTS; do
    # The policy may be newer than the tenant's first pods: those would pull their images.
    of "$tenant" rollout restart deployment/web
    retry 120 of "$tenant" get networks.arktos.futurewei.com default
    retry 120 of "$tenant" get deployment coredns-default --namespace kube-system
    of "$tenant" delete pods --all --wait=false --namespace kube-system
    retry 120 of "$tenant" get runtimeclass kata
    of "$tenant" apply -f - <<END
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      runtimeClassName: kata
      terminationGracePeriodSeconds: 1
      containers:
        - name: web
          image: $BUSYBOX_IMAGE
          command: [sh, -c, "echo web of $tenant; mkdir -p /srv; echo page of $tenant > /srv/index.html; exec httpd -f -p 8080 -h /srv"]
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: shop}
spec:
  runtimeClassName: kata
  terminationGracePeriodSeconds: 1
  containers:
    - name: client
      image: $BUSYBOX_IMAGE
      command: [sleep, "1000000"]
END
done
for tenant in $TENANTS; do
    of "$tenant" rollout status deployment/web --timeout=180s
    of "$tenant" rollout status deployment/web --namespace shop --timeout=180s
    of "$tenant" wait pod/client --namespace shop --for=condition=Ready --timeout=180s
    of "$tenant" get pods,services --namespace shop --output wide
    of "$tenant" get nodes
    echo "$tenant: kubectl logs"
    says "web of $tenant" of "$tenant" logs deployment/web --namespace shop
    echo "$tenant: a guest asks the Service by its name"
    retry 60 says "page of $tenant" of "$tenant" exec client --namespace shop -- \
        sh -c 'printf "GET / HTTP/1.0\r\n\r\n" | nc -w 3 web 80 | tail -n 1'
done
echo "the lab works: each tenant has its own pods, Services and names"
