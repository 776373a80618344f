#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# After files are removed. Configuration, certificates and state go with `purge`.
set -e

if [ "${1:-}" = purge ]; then
    for daemon in @DAEMONS@; do
        rm -rf "/var/lib/vcnode/$daemon" "/var/log/vcnode/$daemon" "/run/vcnode/$daemon" \
            "/etc/vcnode/pki/$daemon" "/etc/vcnode/$daemon.kubeconfig" "/etc/vcnode/$daemon.yaml.new"
        if getent passwd "$daemon" >/dev/null; then
            userdel "$daemon"
        fi
    done
    if [ @PACKAGE@ = vcnode-services ] && getent group vcnode >/dev/null; then
        groupdel vcnode
    fi
    if [ @PACKAGE@ = vcnode-common ]; then
        rm -rf /etc/vcnode /var/lib/vcnode /var/log/vcnode /run/vcnode
    fi
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
