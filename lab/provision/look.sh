#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# On any machine, after try.sh: the commands with which the README explains what a tenant has there.
# shellcheck source=lab/provision/common.sh
. /vagrant/lab/provision/common.sh

for entry in $TENANTS; do
    key=$(cat "$SHARED/tenants/${entry%%,*}/key")
    own="s/tenant-1-70b001-test/$key/"
    if systemctl --quiet is-active vc-syncer; then
        step tenants / -e "$own; s|--address 127.0.0.1:10551|--socket /run/vcnode/vc-syncer/status.sock|"
    elif vcnode guests -o wide | grep "^shop/client .* $key " >/dev/null; then
        step services / -e "$own"
        step names / -e "$own"
    fi
done
