#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A Kata guest image with the agent in it, by Kata's own osbuilder.
#
#   KATA=/path/to/kata-containers packaging/guest/osbuilder/build.sh
#
# Root, and what osbuilder itself needs. Leaves kata-containers.img in $KATA/tools/osbuilder.
set -eu

: "${KATA:?the sources of Kata Containers, of the version that the nodes run}"
here=$(cd "$(dirname "$0")" && pwd)
osbuilder=$KATA/tools/osbuilder
rootfs=${ROOTFS_DIR:-$osbuilder/rootfs-vcnode}

# systemd is init: with AGENT_INIT=yes Kata's agent is process 1, and nobody would start ours.
(
    cd "$osbuilder"
    ROOTFS_DIR=$rootfs AGENT_INIT=no EXTRA_PKGS="python3 iptables libnftables1" \
        ./rootfs-builder/rootfs.sh "${DISTRO:-ubuntu}"
)
"$here/../overlay.sh" "$rootfs"
cd "$osbuilder" && ./image-builder/image_builder.sh "$rootfs"
