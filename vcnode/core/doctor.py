# SPDX-License-Identifier: Apache-2.0
"""Finds what is wrong on a node, from facts, and names the remedy of each fault."""

import re
from collections.abc import Iterator

from daemonkit.remedies import Cause, Hop, HopKind, cause_of_status
from vcnode.core import doctor_daemons
from vcnode.core.doctor_facts import (
    DoctorFacts,
    GroupSocket,
    KernelState,
    ListenPort,
    PeerAnswer,
    Runtime,
    SavedFile,
    ServedCertificate,
    Space,
)
from vcnode.core.findings import Finding, Level, failed, warning
from vcnode.terminal import duration

# The header Date has whole seconds, and the answer takes some time.
SKEW_WARNING_S = 5.0
# Certificates are often valid from their creation, or a minute before.
SKEW_FAILED_S = 60.0
# As `daemonkit.files.saved_state.MAX_AGE_S`: a start does not use older state.
SAVED_MAX_AGE_S = 24 * 3600.0
# An audit log or a state file that cannot be written costs a part of the work.
MIN_FREE_BYTES = 32 << 20
MIN_FREE_SHARE = 0.01
LOW_FREE_SHARE = 0.05
# At the limit new connections are dropped, those of tenants' pods among them.
CONNTRACK_WARNING_SHARE = 0.9
_SOCKET_KEY = re.compile(r"[a-zA-Z.]*socket")


def diagnose(facts: DoctorFacts) -> tuple[Finding, ...]:
    """All findings; of a healthy node none."""
    return tuple(_findings(facts))


def _findings(facts: DoctorFacts) -> Iterator[Finding]:
    yield from _configurations(facts)
    yield from doctor_daemons.findings(facts)
    if facts.kubelet is not None:
        yield from _kubelet(facts.kubelet)
    for peer in facts.api_servers:
        yield from _api_server(peer)
    is_down = any(each.daemon == "vn-agent" and each.problem for each in facts.daemons)
    if facts.served is not None and not is_down:
        yield from _served(facts.served)
    pids = {each.daemon: each.page.pid for each in facts.daemons if each.page is not None}
    for port in facts.ports:
        yield from _port(port, pids.get(port.daemon, 0))
    for saved in facts.saved:
        yield from _saved(saved)
    for space in facts.spaces:
        yield from _space(space)
    if facts.socket is not None:
        yield from _socket(facts.socket)
    if facts.runtime is not None:
        yield from _nri(facts.runtime)
    yield from _kernel(facts.kernel)
    for probe in facts.late:
        remedy = "run it again; if it stays so, examine what it asks"
        yield Finding("probe", Level.UNKNOWN, f"{probe}: no result in time", remedy)


def _configurations(facts: DoctorFacts) -> Iterator[Finding]:
    for config in facts.configs:
        for error in config.errors:
            remedy = f"correct {config.path}; `{config.daemon} --config {config.path} --check-config`"
            yield failed("configuration", f"{config.path}: {error}", remedy)
    for file in facts.files:
        # Sockets of others that are not there yet: the probes have the cause.
        if file.is_warning and _SOCKET_KEY.fullmatch(file.key):
            continue
        message = f"{file.daemon}: {file.key}: {file.path}: {file.message}"
        level = Level.WARNING if file.is_warning else Level.FAILED
        yield Finding("file", level, message, file.remedy or "correct it")


# ---- peers


def _kubelet(peer: PeerAnswer) -> Iterator[Finding]:
    hop = Hop(HopKind.KUBELET, "kubelet", "kubelet.address", "packaging/rbac/vn-agent.yaml")
    where = f"kubelet {peer.address}"
    if peer.cause is not None:
        yield failed("kubelet", f"{where}: {peer.problem}", hop.remedy(peer.cause))
    code = dict(peer.codes).get("/pods", 200)
    remedy = hop.remedy(cause_of_status(code))
    if code == 401:
        yield failed("kubelet", f"{where}: 401: it does not know vn-agent's client certificate", remedy)
    elif code == 403:
        yield failed("rights", f"{where}: 403 for /pods: vn-agent lacks its rights", remedy)
    elif code != 200:
        yield failed("kubelet", f"{where}: {code} for /pods", "see the kubelet's log")
    yield from _clock(peer, where)


def _api_server(peer: PeerAnswer) -> Iterator[Finding]:
    hop = Hop(HopKind.API_SERVER, "API server", peer.key, f"packaging/rbac/{peer.daemon}.yaml")
    where = f"{peer.daemon}: API server {peer.address}"
    if peer.cause is not None:
        yield failed("apiserver", f"{where}: {peer.problem}", hop.remedy(peer.cause))
    refused = [path for path, code in peer.codes if code == 403]
    if any(code == 401 for _, code in peer.codes):
        remedy = hop.remedy(Cause.UNAUTHENTICATED)
        yield failed("apiserver", f"{where}: 401: it does not know these credentials", remedy)
    elif refused:
        remedy = hop.remedy(Cause.FORBIDDEN)
        yield failed("rights", f"{where}: 403 for {', '.join(refused)}", remedy)
    yield from _clock(peer, where)


def _clock(peer: PeerAnswer, where: str) -> Iterator[Finding]:
    if peer.skew_s is None or abs(peer.skew_s) <= SKEW_WARNING_S:
        return
    direction = "behind" if peer.skew_s > 0 else "ahead of"
    message = f"this node's clock is {duration(abs(peer.skew_s))} {direction} that of {where}"
    remedy = "start chrony or systemd-timesyncd on both (`timedatectl`)"
    level = Level.FAILED if abs(peer.skew_s) > SKEW_FAILED_S else Level.WARNING
    yield Finding("clock", level, message, remedy)


def _served(served: ServedCertificate) -> Iterator[Finding]:
    where = f"vn-agent {served.address}"
    if served.problem:
        remedy = "see vn-agent's log; `vcnode status`"
        yield failed("serving", f"{where}: no TLS handshake: {served.problem}", remedy)
    if not served.is_current:
        message = f"{where} shows another certificate than {served.file} has"
        yield warning("serving", message, "systemctl reload vn-agent; check that the file's key fits")
    if served.untrusted:
        message = f"{where}: the given CA does not verify its certificate: {served.untrusted}"
        remedy = "issue serving.certificateFile by the tenants' kubelet CA, or give their apiservers this CA"
        yield failed("serving", f"{message}", f"{remedy} (--kubelet-certificate-authority)")
    if served.missing_name:
        message = f"{served.file} has no name {served.missing_name}, which tenants' apiservers dial"
        yield failed("serving", message, "issue it with this address among its names (SAN)")


# ---- this machine


def _port(port: ListenPort, daemon_pid: int) -> Iterator[Finding]:
    if not port.holder_pid or port.holder_pid == daemon_pid:
        return
    holder = f"{port.holder or 'a process'}, pid {port.holder_pid}"
    message = f"{port.daemon}: {port.key} {port.port} is held by {holder}"
    yield failed("port", message, f"stop that process, or give {port.daemon} another {port.key}")


def _saved(saved: SavedFile) -> Iterator[Finding]:
    if saved.problem:
        message = f"{saved.daemon}: saved state {saved.path}: {saved.problem}"
        remedy = f"remove the file: {saved.daemon} writes it anew when it has synced"
        yield warning("state", message, remedy)
    elif saved.age_s > SAVED_MAX_AGE_S:
        message = f"{saved.daemon}: saved state {saved.path} was confirmed {duration(saved.age_s)} ago"
        remedy = (
            f"find out why {saved.daemon} has not synced since (`vcnode status`); a start does not use it"
        )
        yield warning("state", message, remedy)


def _space(space: Space) -> Iterator[Finding]:
    where = f"{space.what} {space.path}"
    remedy = f"free space below {space.path}, or make its file system larger"
    share = space.free_bytes / space.total_bytes if space.total_bytes else 1.0
    if space.total_bytes and (share < MIN_FREE_SHARE or space.free_bytes < MIN_FREE_BYTES):
        yield failed("disk", f"{where}: {space.free_bytes >> 20} MiB free", remedy)
    elif share < LOW_FREE_SHARE:
        yield warning("disk", f"{where}: {space.free_bytes >> 20} MiB free, {share:.0%}", remedy)
    if space.total_inodes:
        share = space.free_inodes / space.total_inodes
        if share < LOW_FREE_SHARE:
            level = Level.FAILED if share < MIN_FREE_SHARE else Level.WARNING
            remedy = f"remove files from the file system of {space.path}"
            yield Finding("disk", level, f"{where}: {space.free_inodes} inodes free", remedy)


def _socket(socket: GroupSocket) -> Iterator[Finding]:
    if socket.group_id is None:
        return
    if socket.owner_group_id != socket.group_id:
        message = f"{socket.path} belongs to group {socket.owner_group_id}, not to {socket.group}"
        yield failed("socket", message, "restart kata-bridge: it sets listen.group at its start")
    elif socket.mode & 0o060 != 0o060:
        message = f"{socket.path} has mode {socket.mode:04o}: group {socket.group} may not connect"
        yield failed("socket", message, "restart kata-bridge: it sets the mode at its start")


def _nri(runtime: Runtime) -> Iterator[Finding]:
    if runtime.disabled_in:
        message = f"NRI is disabled in {runtime.disabled_in}"
        remedy = 'set disable = false below [plugins."io.containerd.nri.v1.nri"], and restart containerd'
        yield failed("nri", message, remedy)
    elif not runtime.has_socket:
        message = f"the container runtime has no NRI socket {runtime.nri_socket}"
        remedy = "start the runtime, with NRI enabled (containerd 2.0 and newer have it on)"
        yield failed("nri", message, remedy)


def _kernel(kernel: KernelState) -> Iterator[Finding]:
    count, limit = kernel.conntrack_count, kernel.conntrack_max
    if count is not None and limit and count >= limit * CONNTRACK_WARNING_SHARE:
        level = Level.FAILED if count >= limit else Level.WARNING
        message = (
            f"the conntrack table has {count} of {limit} entries: new connections are dropped at the limit"
        )
        remedy = "raise net.netfilter.nf_conntrack_max (kube-proxy: conntrack.maxPerCore)"
        yield Finding("conntrack", level, message, remedy)
    if kernel.lock_problem:
        remedy = "mount /run writable for kata-bridge, so that it takes the lock that kube-proxy takes"
        yield failed("xtables", f"the xtables lock cannot be used: {kernel.lock_problem}", remedy)
