#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Puts the agent into a root file system: of a guest image, a container, a User-mode Linux.
#
#   packaging/guest/overlay.sh ROOT [SITE_PACKAGES]
#
# SITE_PACKAGES has grpcio for the Python of that root; without it pip fetches it, with the Python
# that runs here (PYTHON, default python3), whose minor version must be the root's.
set -eu

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    sed -n '3,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
root=$1
site=${2-}
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
tree=$root/usr/lib/vcnode-guest/site-packages

mkdir -p "$tree/kata_bridge" "$root/usr/bin" "$root/usr/lib/systemd/system/kata-containers.target.wants"

# What tests/functional/kata_bridge/guest/test_closure.py says the agent imports.
for package in daemonkit ruleset kata_bridge/api kata_bridge/guest; do
    rm -rf "${tree:?}/$package"
    mkdir -p "$tree/$package"
    (cd "$top/$package" && find . -name '*.py' ! -name testing.py -print0) |
        (cd "$top/$package" && xargs -0 tar cf - --) | tar xf - -C "$tree/$package"
done
cp "$top/kata_bridge/__init__.py" "$tree/kata_bridge/"
# Of daemonkit two modules; what they do not import stays at home.
find "$tree/daemonkit" -mindepth 1 -maxdepth 1 ! -name __init__.py ! -name logs.py ! -name protobuf.py -exec rm -rf {} +

if [ -n "$site" ]; then
    cp -a "$site/grpc" "$tree/"
    cp -a "$site/typing_extensions.py" "$tree/"
else
    "${PYTHON:-python3}" -m pip install --quiet --no-compile --only-binary=:all: --target "$tree" 'grpcio>=1.80,<2'
fi
find "$tree" \( -name '*.pyi' -o -name '__pycache__' \) -prune -exec rm -rf {} +

cat >"$root/usr/bin/vcnode-guest-agent" <<'LAUNCHER'
#!/usr/bin/python3 -ISEB
import sys

sys.path.insert(0, "/usr/lib/vcnode-guest/site-packages")
from kata_bridge.guest.__main__ import main

sys.exit(main())
LAUNCHER
chmod 0755 "$root/usr/bin/vcnode-guest-agent"
install -m 0755 "$here/respawn" "$root/usr/lib/vcnode-guest/respawn"
install -m 0644 "$here/README.md" "$root/usr/lib/vcnode-guest/README.md"
install -m 0644 "$here/vcnode-guest-agent.service" "$root/usr/lib/systemd/system/"
ln -sf ../vcnode-guest-agent.service "$root/usr/lib/systemd/system/kata-containers.target.wants/"
