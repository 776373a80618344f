#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# After an installation or an upgrade: users and directories, and a restart of what runs. It starts nothing that did
# not run: a node serves after `vcnode init`.
set -e

fragment=/usr/lib/sysusers.d/@PACKAGE@.conf
if [ -e "$fragment" ]; then
    systemd-sysusers "$fragment"
fi
fragment=/usr/lib/tmpfiles.d/@PACKAGE@.conf
if [ -e "$fragment" ]; then
    systemd-tmpfiles --create "$fragment"
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    for unit in @UNITS@; do
        systemctl try-restart "$unit"
    done
fi
