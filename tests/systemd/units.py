# SPDX-License-Identifier: Apache-2.0
"""The units as systemd sees them, and what their daemons take: exposure, memory, the time to READY."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests import guide
from tests.k8s.ring.tenants import RingTenant
from tests.systemd import lifecycle
from tests.systemd.site import PACKAGES, Site

# `systemd-analyze security`, from 0 to 10. kata-bridge enters guests' namespaces and mounts as root.
EXPOSURE_LIMITS: Mapping[str, float] = {
    "vn-agent": 1.5,
    "kubeproxy-ext": 1.5,
    "dnsconfig": 1.5,
    "vc-syncer": 1.5,
    "vc-operator": 1.5,
    "dnsconfig-webhook": 1.5,
    "kata-bridge": 4.0,
}
_INI = re.compile(r"^```ini\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NODE_DAEMONS = ("vn-agent", "kata-bridge", "kubeproxy-ext", "dnsconfig")
# Daemons of the super cluster's side. They are not on this node, and have no configuration here.
_OTHERS = ("vcnode-syncer", "vcnode-operator", "vcnode-webhook")
_EXPOSURE = re.compile(r"Overall exposure level for \S+: ([0-9.]+)")
# Private and shared pages of the daemon's process, without the script that vn-agent's unit begins with.
_MEMORY = """
for pid in $(pgrep --full '/usr/bin/{daemon} --config'); do
    case $(readlink /proc/$pid/exe) in */python3*) grep -E '^(Rss|Pss):' /proc/$pid/smaps_rollup;; esac
done
"""
_DROP_IN = "/etc/systemd/system/vn-agent.service.d/credential.conf"
_CONFIG = "/etc/vcnode/vn-agent.yaml"
_KEY = "/etc/vcnode/pki/vn-agent/serving.key"
_CREDENTIAL = "/run/credentials/vn-agent.service/serving.key"
_BRIDGE = "/etc/vcnode/kata-bridge.yaml"
# Its guests' agents, whose certificates it issues. Nodes with stock Kata alone have none.
_WITHOUT_AGENTS = f"""
cp --preserve=all {_BRIDGE} /root/kept.yaml
sed --in-place '/^agent:/,/^[^ #]/{{/^agent:/d; /^ /d}}' {_BRIDGE}
systemctl restart kata-bridge
"""
_MAPS = "cat /proc/$(systemctl show --property=MainPID --value kata-bridge)/maps"
_WITH_AGENTS = f"mv /root/kept.yaml {_BRIDGE}; systemctl restart kata-bridge"
_TIMES = "systemctl show --property=ExecMainStartTimestampMonotonic,ActiveEnterTimestampMonotonic {daemon}"


def check(site: Site, _: RingTenant) -> Iterator[str]:
    """A line for each thing that held. Raises `RingError` or `AssertionError`."""
    yield from _check_units(site)
    for daemon in _NODE_DAEMONS:
        rss, pss = _memory_mb(site, daemon)
        yield f"{daemon}: {rss:.0f} MB resident, {pss:.0f} MB of its own share"
    for daemon in _NODE_DAEMONS:
        yield f"{daemon}: READY {_cold_start_s(site, daemon):.2f} s after its start, with cold caches"
    lifecycle.wait_until_ready(site)
    yield _measure_without_agents(site)
    lifecycle.wait_until_ready(site)
    yield _check_credential(site)


def _measure_without_agents(site: Site) -> str:
    site.booted.run(_WITHOUT_AGENTS)
    try:
        lifecycle.wait_until_ready(site)
        _, pss = _memory_mb(site, "kata-bridge")
        start_s = _cold_start_s(site, "kata-bridge")
        # So that the figures are of what they say.
        assert "cryptography" not in site.booted.run(_MAPS)
    finally:
        site.booted.run(_WITH_AGENTS)
    return f"kata-bridge without agents in guests: {pss:.0f} MB of its own share, READY {start_s:.2f} s"


def _check_units(site: Site) -> Iterator[str]:
    """All units, while the packages of the super cluster's side are there too."""
    paths = " ".join(f"{PACKAGES}/{name}_*.deb" for name in _OTHERS)
    site.booted.run(f"DEBIAN_FRONTEND=noninteractive dpkg --install {paths} 2>&1")
    try:
        units = [f"{daemon}.service" for daemon in EXPOSURE_LIMITS]
        # The node has no program man.
        code, printed = site.booted.try_run(f"systemd-analyze verify --man=no vcnode.slice {' '.join(units)}")
        assert (code, printed) == (0, ""), printed
        yield f"systemd-analyze verify: nothing to say of {len(units)} units and the slice"
        for daemon, limit in EXPOSURE_LIMITS.items():
            printed = site.booted.run(f"systemd-analyze security --no-pager {daemon}.service")
            found = _EXPOSURE.search(printed)
            assert found is not None, printed
            assert float(found[1]) < limit, f"{daemon}: {found[1]}, expected less than {limit}\n{printed}"
            yield f"{daemon}: exposure {found[1]} of 10, less than {limit}"
    finally:
        site.booted.run(f"DEBIAN_FRONTEND=noninteractive dpkg --purge {' '.join(_OTHERS)} 2>&1")


def _check_credential(site: Site) -> str:
    """The drop-in of systemd/README.md, with a configuration that names systemd's copy of the key."""
    text = (guide.ROOT / "systemd/README.md").read_text()
    found = _INI.search(text)
    assert found is not None, text
    site.booted.write(_DROP_IN, found[1].encode())
    site.booted.run(
        f"cp --preserve=all {_CONFIG} /root/kept.yaml; sed --in-place 's|{_KEY}|{_CREDENTIAL}|' {_CONFIG}"
    )
    try:
        site.booted.run(
            f"grep --quiet {_CREDENTIAL} {_CONFIG}; systemctl daemon-reload; systemctl restart vn-agent"
        )
        lifecycle.wait_until_ready(site)
    finally:
        site.booted.run(
            f"mv /root/kept.yaml {_CONFIG}; rm -r $(dirname {_DROP_IN}); systemctl daemon-reload;"
            " systemctl restart vn-agent"
        )
    lifecycle.wait_until_ready(site)
    return "vn-agent: ready with its serving key as a credential of systemd"


def _memory_mb(site: Site, daemon: str) -> tuple[float, float]:
    """Resident and proportional memory, in MB of 10^6 bytes."""
    printed = site.booted.run(_MEMORY.format(daemon=daemon))
    sizes = dict(line.split(":") for line in printed.splitlines())
    rss, pss = (int(sizes[name].split()[0]) * 1024 / 1e6 for name in ("Rss", "Pss"))
    return rss, pss


def _cold_start_s(site: Site, daemon: str) -> float:
    """From the start of the process to READY=1, which waits for what the daemon asks."""
    site.booted.run(f"systemctl stop {daemon} && sync")
    Path("/proc/sys/vm/drop_caches").write_text("3\n")
    site.booted.run(f"systemctl start {daemon}")
    times = dict(line.split("=") for line in site.booted.run(_TIMES.format(daemon=daemon)).splitlines())
    begun, ready = (int(times[f"{name}TimestampMonotonic"]) for name in ("ExecMainStart", "ActiveEnter"))
    return (ready - begun) / 1e6
