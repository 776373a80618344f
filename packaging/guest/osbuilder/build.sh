#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds a Kata guest image with the agent, by Kata's osbuilder.
#
#   KATA=/path/to/kata-containers packaging/guest/osbuilder/build.sh
#
# Needs root and osbuilder's own requirements. Writes kata-containers.img into $KATA/tools/osbuilder.
set -eu

: "${KATA:?the sources of Kata Containers, of the version that the nodes run}"
here=$(cd "$(dirname "$0")" && pwd)
osbuilder=$KATA/tools/osbuilder
rootfs=${ROOTFS_DIR:-$osbuilder/rootfs-vcnode}

# systemd is init. With AGENT_INIT=yes Kata's agent is process 1 and would not start ours.
(
    cd "$osbuilder"
    ROOTFS_DIR=$rootfs AGENT_INIT=no EXTRA_PKGS="python3 iptables libnftables1" \
        ./rootfs-builder/rootfs.sh "${DISTRO:-ubuntu}"
)
"$here/../overlay.sh" "$rootfs"
cd "$osbuilder" && ./image-builder/image_builder.sh "$rootfs"
