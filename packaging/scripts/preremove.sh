#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Before files are removed. dpkg calls it with `remove` or `upgrade`, rpm with the number of versions that stay.
set -e

case "${1:-}" in
remove | 0)
    if [ -d /run/systemd/system ]; then
        for unit in @UNITS@; do
            systemctl --no-reload disable --now "$unit"
            # vn-agent may still finish streams of tenants. Its files go now.
            systemctl kill --signal=KILL "$unit" 2>/dev/null || true
        done
    fi
    ;;
esac
