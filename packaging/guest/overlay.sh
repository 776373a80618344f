#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copies the agent into the root file system of a guest image, a container or a User-mode Linux.
#
#   packaging/guest/overlay.sh ROOT
#
# It copies Python sources. They run with the standard library of any Python from 3.11 on.
set -eu

if [ $# -ne 1 ]; then
    sed -n '3,7s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
root=$1
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
tree=$root/usr/lib/vcnode-guest/site-packages

mkdir -p "$tree" "$root/usr/bin" "$root/usr/lib/systemd/system/kata-containers.target.wants"

# What the agent imports, as tests/functional/guest_agent/test_closure.py checks.
for package in daemonkit ruleset bridge_api guest_agent; do
    rm -rf "${tree:?}/$package"
    mkdir -p "$tree/$package"
    (cd "$top/$package" && find . -name '*.py' -print0) |
        (cd "$top/$package" && xargs -0 tar cf - --) | tar xf - -C "$tree/$package"
done
# Of daemonkit five modules, and of bridge_api those without grpcio.
find "$tree/daemonkit" -mindepth 1 -maxdepth 1 ! -name __init__.py ! -name http2.py ! -name library_logs.py ! -name logs.py ! -name protobuf.py ! -name version.py -exec rm -rf {} +
rm "$tree/bridge_api/client.py" "$tree/bridge_api/rpc.py" "$tree/bridge_api/session.py"

cat >"$root/usr/bin/vcnode-guest-agent" <<'LAUNCHER'
#!/usr/bin/python3 -ISEB
import sys

sys.path.insert(0, "/usr/lib/vcnode-guest/site-packages")
from guest_agent.__main__ import main

sys.exit(main())
LAUNCHER
chmod 0755 "$root/usr/bin/vcnode-guest-agent"
install -m 0755 "$here/respawn" "$root/usr/lib/vcnode-guest/respawn"
install -m 0644 "$here/README.md" "$root/usr/lib/vcnode-guest/README.md"
install -m 0644 "$here/vcnode-guest-agent.service" "$root/usr/lib/systemd/system/"
ln -sf ../vcnode-guest-agent.service "$root/usr/lib/systemd/system/kata-containers.target.wants/"
