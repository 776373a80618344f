#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kubernetes.sh NAME ADDRESS, on any machine of Vagrant's: containerd and Kubernetes, by kubeadm. `make lab-up` has
# the control plane, containerd and the kubelets of the tests in its place.
# shellcheck source=lab/provision/common.sh
. /vagrant/lab/provision/common.sh
name=$1 address=$2
keyrings=/etc/apt/keyrings
kubernetes=https://pkgs.k8s.io/core:/stable:/v1.34/deb
docker=https://download.docker.com/linux/debian
provisioner=https://raw.githubusercontent.com/rancher/local-path-provisioner/v0.0.31/deploy/local-path-storage.yaml

printf 'overlay\nbr_netfilter\n' >/etc/modules-load.d/kubernetes.conf
modprobe -a overlay br_netfilter
printf 'net.ipv4.ip_forward = 1\n' >/etc/sysctl.d/90-kubernetes.conf
sysctl --quiet --system
swapoff -a
sed -i '/\sswap\s/d' /etc/fstab

apt-get update
apt-get install --yes ca-certificates curl gpg xz-utils zstd
mkdir -p "$keyrings"
curl -fsSL "$kubernetes/Release.key" | gpg --batch --yes --dearmor -o "$keyrings/kubernetes.gpg"
curl -fsSL "$docker/gpg" | gpg --batch --yes --dearmor -o "$keyrings/docker.gpg"
echo "deb [signed-by=$keyrings/kubernetes.gpg] $kubernetes/ /" >/etc/apt/sources.list.d/kubernetes.list
echo "deb [signed-by=$keyrings/docker.gpg] $docker bookworm stable" >/etc/apt/sources.list.d/docker.list
apt-get update
apt-get install --yes containerd.io kubelet kubeadm kubectl iptables conntrack openssh-client python3

# Kata's release, where somebody has put it beside the Vagrantfile and the machine may virtualize.
kata='runtime_type = "io.containerd.runc.v2"'
for archive in /vagrant/lab/kata-static*.tar.*; do
    if [ -e "$archive" ] && [ -e /dev/kvm ]; then
        tar --extract --file "$archive" --directory /
        ln -sf /opt/kata/bin/containerd-shim-kata-v2 /usr/local/bin/
        kata='runtime_type = "io.containerd.kata.v2"'
    fi
done
cat >/etc/containerd/config.toml <<END
version = 3
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata]
$kata
[plugins.'io.containerd.nri.v1.nri'.default_validator]
enable = true
END
systemctl restart containerd
# Of `make images`; a site has a registry.
for archive in /vagrant/dist/vc-*.tar; do
    ctr --namespace k8s.io images import "$archive"
done
echo "KUBELET_EXTRA_ARGS=--node-ip=$address" >/etc/default/kubelet

# Kubelets ask for serving certificates (serverTLSBootstrap), and no controller approves them by itself.
approve="requests=\$(kubectl get csr --field-selector spec.signerName=kubernetes.io/kubelet-serving --output \
    'jsonpath={range .items[?(@.spec.username==\"system:node:$name\")]}{.metadata.name} {end}')
    [ -n \"\$requests\" ] && kubectl certificate approve \$requests"
on_control() {
    if [ "$name" = "$CONTROL" ]; then
        KUBECONFIG=/etc/kubernetes/admin.conf sh -c "$1"
    else
        ssh -i /root/.ssh/machines-key -o StrictHostKeyChecking=accept-new "root@$CONTROL_ADDRESS" \
            "KUBECONFIG=/etc/kubernetes/admin.conf; export KUBECONFIG; $1"
    fi
}
approve_serving() {
    # After a first start the kubelet has its certificate, and the request is gone.
    [ -e /var/lib/kubelet/pki/kubelet-server-current.pem ] || on_control "$approve"
}

if [ "$name" = "$CONTROL" ]; then
    [ -e /etc/kubernetes/admin.conf ] || kubeadm init --node-name "$name" --config /dev/stdin <<END
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: $CONTROL_ADDRESS}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
networking: {serviceSubnet: $SERVICE_CIDR}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
serverTLSBootstrap: true
END
    retry 60 approve_serving
    # Volumes of tenants' control planes: directories of the workers.
    kubectl --kubeconfig=/etc/kubernetes/admin.conf apply -f "$provisioner"
    kubectl --kubeconfig=/etc/kubernetes/admin.conf annotate --overwrite storageclass local-path storageclass.kubernetes.io/is-default-class=true
    install -d -m 700 /root/.ssh
    grep -qxFf /tmp/machines-key.pub /root/.ssh/authorized_keys 2>/dev/null || cat /tmp/machines-key.pub >>/root/.ssh/authorized_keys
    exit 0
fi

# The pods' network: a link for each pod, and routes to the other workers (routes.sh).
pods=$(echo "$WORKERS" | tr ' ' '\n' | awk -F, -v name="$name" '$1 == name { print $3 }')
mkdir -p /etc/cni/net.d
cat >/etc/cni/net.d/10-lab.conflist <<END
{"cniVersion": "1.0.0", "name": "lab", "plugins": [
  {"type": "ptp", "ipMasq": false, "ipam": {"type": "host-local", "ranges": [[{"subnet": "$pods"}]],
                                            "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}]}
END

install -D -m 0600 /tmp/machines-key /root/.ssh/machines-key
rm /tmp/machines-key
if [ ! -e /etc/kubernetes/kubelet.conf ]; then
    join=$(on_control 'kubeadm token create --print-join-command')
    $join --node-name "$name"
fi
retry 60 approve_serving
install -d -m 700 "$SHARED"
on_control "tar --create --directory $SHARED $name" >/root/shared.tar
tar --extract --file /root/shared.tar --directory "$SHARED"
rm /root/shared.tar
