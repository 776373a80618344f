#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# After files are removed. rpm has no purge: edited configuration, certificates and state stay.
set -e

if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
