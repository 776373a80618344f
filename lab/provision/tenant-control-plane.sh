#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tenant-control-plane.sh NAME PORT, on the control machine: a control plane of the tenant's own, as a static pod.
# It has authorities of its own. It shares the super cluster's etcd, under another prefix.
# shellcheck source=lab/provision/common.sh
. /vagrant/lab/provision/common.sh
name=$1 port=$2
manifests=/etc/kubernetes/manifests
pki=/etc/kubernetes/tenants/$name
umask 077
mkdir -p "$pki"
cd "$pki"
printf '[req]\ndistinguished_name = name\n[name]\n' >openssl.cnf

# make FILE SUBJECT OPTION...: a key and a certificate, unless they are there.
make() {
    file=$1 subject=$2
    shift 2
    [ -e "$file.crt" ] || openssl req -x509 -config openssl.cnf -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 \
        -subj "$subject" -keyout "$file.key" -out "$file.crt" -addext subjectKeyIdentifier=hash "$@" 2>openssl.log || {
        cat openssl.log >&2
        exit 1
    }
}
authority() {
    make "$1" "/CN=$2" -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign
}
# issue AUTHORITY FILE SUBJECT USAGE [OPTION...]
issue() {
    by=$1 leaf=$2 of=$3 usage=$4
    shift 4
    make "$leaf" "$of" -CA "$by.crt" -CAkey "$by.key" -addext basicConstraints=critical,CA:FALSE \
        -addext keyUsage=critical,digitalSignature -addext "extendedKeyUsage=$usage" -addext authorityKeyIdentifier=keyid "$@"
}

authority ca kubernetes
authority front-proxy-ca front-proxy
# The first address of its service range is that of the Service `kubernetes`.
first=$(echo "$TENANT_SERVICE_CIDR" | sed 's|0/[0-9]*$|1|')
names=DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local
issue ca apiserver /CN=kube-apiserver serverAuth -addext "subjectAltName=IP:$CONTROL_ADDRESS,IP:$first,$names"
issue ca apiserver-kubelet-client "/CN=kube-apiserver-kubelet-client/O=$name" clientAuth
issue ca admin /O=system:masters/CN=kubernetes-admin clientAuth
issue ca controller-manager /CN=system:kube-controller-manager clientAuth
issue ca vc-syncer /O=vcnode:vc-syncers/CN=vcnode:vc-syncer clientAuth
issue front-proxy-ca front-proxy-client /CN=front-proxy-client clientAuth
[ -e sa.key ] || openssl ecparam -name prime256v1 -genkey -noout -out sa.key
# Who signed what it meets at a vNode's address: vn-agent.
cp "$DESK/authorities/serving-ca.crt" vn-agent-ca.crt
for user in admin controller-manager vc-syncer; do
    export KUBECONFIG="$pki/$user.conf"
    kubectl config set-cluster "$name" --server="https://$CONTROL_ADDRESS:$port" --certificate-authority=ca.crt --embed-certs >/dev/null
    kubectl config set-credentials "$user" --client-certificate="$user.crt" --client-key="$user.key" --embed-certs >/dev/null
    kubectl config set-context "$name" --cluster="$name" --user="$user" >/dev/null
    kubectl config use-context "$name" >/dev/null
done

# item LINE...: lines of the super cluster's own manifests, such as its etcd or its image.
item() {
    sed -n "s/^ *\(- \)\{0,1\}\($1.*\)$/\2/p" "$manifests/$2.yaml"
}
cat >"$manifests/tenant-$name.yaml" <<END
apiVersion: v1
kind: Pod
metadata:
  name: tenant-$name
  namespace: kube-system
spec:
  hostNetwork: true
  priorityClassName: system-node-critical
  containers:
    - name: kube-apiserver
      $(item 'image: ' kube-apiserver)
      command:
        - kube-apiserver
$(item '--etcd-\(ca\|cert\|key\|servers\)' kube-apiserver | sed 's/^/        - /')
        - --etcd-prefix=/tenants/$name
        - --advertise-address=$CONTROL_ADDRESS
        - --bind-address=$CONTROL_ADDRESS
        - --secure-port=$port
        - --tls-cert-file=$pki/apiserver.crt
        - --tls-private-key-file=$pki/apiserver.key
        - --client-ca-file=$pki/ca.crt
        - --authorization-mode=Node,RBAC
        - --allow-privileged=true
        - --service-cluster-ip-range=$TENANT_SERVICE_CIDR
        - --service-account-issuer=https://kubernetes.default.svc.cluster.local
        - --service-account-key-file=$pki/sa.key
        - --service-account-signing-key-file=$pki/sa.key
        - --kubelet-client-certificate=$pki/apiserver-kubelet-client.crt
        - --kubelet-client-key=$pki/apiserver-kubelet-client.key
        - --kubelet-certificate-authority=$pki/vn-agent-ca.crt
        - --kubelet-preferred-address-types=InternalIP
        - --enable-aggregator-routing=true
        - --requestheader-client-ca-file=$pki/front-proxy-ca.crt
        - --requestheader-allowed-names=front-proxy-client
        - --requestheader-extra-headers-prefix=X-Remote-Extra-
        - --requestheader-group-headers=X-Remote-Group
        - --requestheader-username-headers=X-Remote-User
        - --proxy-client-cert-file=$pki/front-proxy-client.crt
        - --proxy-client-key-file=$pki/front-proxy-client.key
      volumeMounts: &volumes
        - {name: kubernetes, mountPath: /etc/kubernetes, readOnly: true}
    - name: kube-controller-manager
      $(item 'image: ' kube-controller-manager)
      command:
        - kube-controller-manager
        - --kubeconfig=$pki/controller-manager.conf
        - --use-service-account-credentials=true
        - --service-account-private-key-file=$pki/sa.key
        - --root-ca-file=$pki/ca.crt
        - --cluster-signing-cert-file=$pki/ca.crt
        - --cluster-signing-key-file=$pki/ca.key
        - --leader-elect=false
        - --secure-port=0
      volumeMounts: *volumes
  volumes:
    - name: kubernetes
      hostPath: {path: /etc/kubernetes, type: Directory}
END
