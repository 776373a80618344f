#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# worker.sh NAME, on a worker: the README's install section. /srv/lab has what the control machine made for it.
# shellcheck source=lab/provision/common.sh
. /vagrant/lab/provision/common.sh
name=$1

step 'install: packages' /vagrant/dist
# Without a new bundle the node keeps what it has.
if [ -d "$SHARED/$name" ] || [ ! -e /etc/vcnode/node.json ]; then
    step 'install: node' "$SHARED" "node-1=$name"
fi
# Without Kata the handler `kata` is runc: such a guest's rules go into the pod's own network namespace.
begin='# Of the lab: this machine has no Kata.'
if [ -e /opt/kata/bin/containerd-shim-kata-v2 ]; then
    sed -i "/^$begin\$/,\$d" /etc/vcnode/kata-bridge.yaml
elif ! grep -q "^$begin\$" /etc/vcnode/kata-bridge.yaml; then
    cat >>/etc/vcnode/kata-bridge.yaml <<END

$begin
runtimes:
- handlers: [kata]
  channels: [netns]
END
fi
step 'install: start' /
retry 60 vcnode status
step 'install: ask' /
