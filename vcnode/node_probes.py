# SPDX-License-Identifier: Apache-2.0
"""Gathers the facts of `vcnode doctor`: all probes of one node, side by side, in bounded time."""

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from daemonkit.config.binding import ConfigError
from daemonkit.status.server import ListenAddress, StatusError, fetch
from daemonkit.tls.contexts import TlsError
from daemonkit.version import VERSION
from vcnode import config_checks, machine
from vcnode.config_checks import InstalledDaemon
from vcnode.core.doctor_facts import DaemonAnswer, DoctorFacts, DoctorPage, ListenPort, PeerAnswer
from vcnode.daemons import SOCKET_DIRECTORY
from vcnode.peer_probes import ask, ask_api_server, served_certificate
from vcnode.terminal import ToolError

# All probes run side by side, each with a limit of its own below this.
DEADLINE_S = 6.0
_STATUS_S = 3.0
LOG_DIRECTORY = Path("/var/log/vcnode")
_VERSION = re.compile(
    rb'^[a-z]{1,40}_build_info\{[^}\n]{0,200}version="([0-9A-Za-z.+-]{1,40})"', re.MULTILINE
)

# What each daemon reads of its API server, as packaging/rbac grants it; {node} is the node's name.
_NODE_PODS = "/api/v1/pods?fieldSelector=spec.nodeName%3D{node}&limit=1"
_READS = {
    "kubeproxy-ext": (
        "/api/v1/services?limit=1",
        "/api/v1/namespaces?limit=1",
        "/apis/discovery.k8s.io/v1/endpointslices?limit=1",
    ),
    "dnsconfig": (_NODE_PODS, "/api/v1/services?limit=1", "/api/v1/namespaces?limit=1"),
    "dnsconfig-webhook": ("/api/v1/services?limit=1", "/api/v1/namespaces?limit=1"),
    "vc-syncer": ("/api/v1/pods?limit=1", "/api/v1/namespaces?limit=1", "/api/v1/nodes?limit=1"),
    "vc-operator": ("/api/v1/secrets?limit=1", "/apis/tenancy.x-k8s.io/v1alpha1/virtualclusters?limit=1"),
}

CallProbe = Callable[[], Any]


def gather(directory: Path, serving_ca: Path | None, now_s: float) -> DoctorFacts:
    """The facts about this node, in `DEADLINE_S` and the time of the daemons' own checks."""
    daemons = config_checks.installed(directory)
    if not daemons:
        names = ", ".join(f"{daemon.name}.yaml" for daemon in config_checks.DAEMONS)
        raise ToolError(
            f"{directory} has no configuration of a daemon: {names} (another: --config-directory)"
        )
    checks = config_checks.check_all(daemons, now_s)
    node = _NodeProbes(load_all(daemons), serving_ca, now_s)
    results, late = run_probes(dict(node.probes()), DEADLINE_S)

    def every(kind: str) -> tuple[Any, ...]:
        return tuple(
            value for name, value in results.items() if name.split(":")[0] == kind and value is not None
        )

    return DoctorFacts(
        version=VERSION,
        configs=checks.configs,
        files=checks.files,
        daemons=every("daemon"),
        kubelet=next(iter(every("kubelet")), None),
        api_servers=every("API server"),
        served=next(iter(every("serving certificate")), None),
        ports=next(iter(every("ports")), ()),
        saved=tuple(each for files in every("saved state") for each in files),
        spaces=every("space"),
        socket=next(iter(every("socket")), None),
        runtime=next(iter(every("NRI")), None),
        kernel=machine.kernel_state(needs_lock=node.uses_host_iptables()),
        late=(*checks.late, *late),
    )


def run_probes(probes: Mapping[str, CallProbe], deadline_s: float) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The result of each probe, all side by side, and the names of those that did not end in time.

    Threads that still wait end with the process.
    """
    results: dict[str, Any] = {}

    def call(name: str, probe: CallProbe) -> None:
        results[name] = probe()

    threads = {
        name: threading.Thread(target=call, args=(name, probe), name=name, daemon=True)
        for name, probe in probes.items()
    }
    for thread in threads.values():
        thread.start()
    deadline = time.monotonic() + deadline_s
    for thread in threads.values():
        thread.join(max(0.0, deadline - time.monotonic()))
    done = dict(results)
    return {name: done[name] for name in probes if name in done}, tuple(n for n in probes if n not in done)


def load_all(daemons: Mapping[InstalledDaemon, Path]) -> dict[str, Any]:
    """The configurations that can be read, by daemon."""
    found = {}
    for daemon, path in daemons.items():
        try:
            found[daemon.name] = daemon.load(path)
        except (ConfigError, ModuleNotFoundError):
            continue  # a finding of its own
    return found


class _NodeProbes:
    """The configurations, and the probes that they call for."""

    def __init__(self, configs: Mapping[str, Any], serving_ca: Path | None, now_s: float) -> None:
        self._configs = configs
        self._serving_ca = serving_ca
        self._now_s = now_s

    def probes(self) -> Iterator[tuple[str, CallProbe]]:
        """Each with a name that begins with its kind."""
        for daemon, config in self._configs.items():
            if config.status.listen_at is not None:
                yield f"daemon: {daemon}", partial(_answer, daemon, config.status.listen_at)
            reads = _reads(daemon, getattr(config, "node_name", ""))
            for key, path in _kubeconfigs(daemon, config).items():
                yield f"API server: {daemon}: {key}", partial(ask_api_server, daemon, key, path, reads)
            state = getattr(config, "state_directory", None)
            if state is not None:
                yield f"space: {daemon}", partial(machine.space, f"{daemon}: stateDirectory", state)
            if state is not None and daemon != "kata-bridge":
                yield f"saved state: {daemon}", partial(machine.saved_files, daemon, state, self._now_s)
        yield "space: logs", partial(machine.space, "logs", LOG_DIRECTORY)
        yield "space: sockets", partial(machine.space, "sockets", SOCKET_DIRECTORY)
        yield "ports", self._ports
        if "vn-agent" in self._configs:
            yield from self._agent_probes(self._configs["vn-agent"])
        if "kata-bridge" in self._configs:
            yield from self._bridge_probes(self._configs["kata-bridge"])

    def _agent_probes(self, config: Any) -> Iterator[tuple[str, CallProbe]]:
        if config.kubelet is not None:
            yield "kubelet", partial(_kubelet, config.kubelet)
        if config.audit.path is not None:
            yield "space: audit", partial(machine.space, "vn-agent: audit.file", config.audit.path.parent)
        listen, file = config.listen, config.serving.certificate_file
        if listen.port:
            address = (listen.address, listen.port)
            yield "serving certificate", partial(served_certificate, address, file, self._serving_ca)

    def _bridge_probes(self, config: Any) -> Iterator[tuple[str, CallProbe]]:
        listen, source = config.listen, config.sandboxes.nri
        yield "socket", partial(machine.group_socket, listen.socket, listen.group, listen.gid)
        if source is not None:
            yield "NRI", partial(machine.nri, source.socket)

    def uses_host_iptables(self) -> bool:
        """Whether kata-bridge runs iptables for guests of this kernel."""
        config = self._configs.get("kata-bridge")
        return config is not None and any("netns" in rule.channels for rule in config.runtimes)

    def _ports(self) -> tuple[ListenPort, ...]:
        try:
            return machine.port_holders(ListenPort(*each) for each in listen_ports(self._configs))
        except ModuleNotFoundError:  # psutil is not installed: who holds a port stays unknown
            return ()


def listen_ports(configs: Mapping[str, Any]) -> Iterator[tuple[str, str, str, int]]:
    """InstalledDaemon, key, address and number of each TCP port that configurations name."""
    for daemon in ("vn-agent", "dnsconfig-webhook"):
        config = configs.get(daemon)
        if config is not None and config.listen.port:
            yield daemon, "listen.port", config.listen.address, config.listen.port
    bridge = configs.get("kata-bridge")
    agent = None if bridge is None else bridge.agent
    if agent is not None and agent.address is not None and agent.port:
        yield "kata-bridge", "agent.port", agent.address, agent.port


def _reads(daemon: str, node: str) -> tuple[str, ...]:
    return ("/version", *(path.format(node=node) for path in _READS.get(daemon, ())))


def _kubeconfigs(daemon: str, config: Any) -> dict[str, Path]:
    """The kubeconfigs of a configuration, by key."""
    if daemon == "vn-agent":
        upstream = config.super_apiserver
        found = {
            "tenants.kubeconfigFile": config.tenants.kubeconfig_file,
            "superApiserver.kubeconfigFile": None if upstream is None else upstream.kubeconfig_file,
        }
    elif daemon == "kata-bridge":
        cluster = None if config.gate is None else config.gate.super_cluster
        found = {"gate.superCluster.kubeconfigFile": None if cluster is None else cluster.kubeconfig_file}
    else:
        found = {"superCluster.kubeconfigFile": config.super_cluster.kubeconfig_file}
    return {key: path for key, path in found.items() if path is not None}


def _answer(daemon: str, where: ListenAddress) -> DaemonAnswer:
    name = str(where) if isinstance(where, Path) else f"{where[0]}:{where[1]}"
    try:
        code, readyz = fetch(where, "/readyz", _STATUS_S)
        page = msgspec.json.decode(fetch(where, "/status", _STATUS_S)[1], type=DoctorPage)
        version = _VERSION.search(fetch(where, "/metrics", _STATUS_S)[1])
    except TimeoutError:
        return DaemonAnswer(daemon, name, f"no answer within {_STATUS_S:.0f} s: it is stopped or stuck")
    except ConnectionRefusedError:
        return DaemonAnswer(daemon, name, "connection refused: it was killed, or has not started")
    except OSError as error:
        return DaemonAnswer(daemon, name, error.strerror or type(error).__name__)
    except (StatusError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return DaemonAnswer(daemon, name, "the answer is not a daemon's status")
    why = tuple(line for line in readyz.decode("utf-8", "replace").splitlines() if line)
    if page.daemon != daemon:
        return DaemonAnswer(daemon, name, f"{page.daemon} answers there")
    return DaemonAnswer(
        daemon, name, "", code == 200, why, page, "" if version is None else version[1].decode("ascii")
    )


def _kubelet(kubelet: Any) -> PeerAnswer | None:
    # Only here: a node without vn-agent may not have it installed.
    from vnagent.trust import kubelet_context

    try:
        context = kubelet_context(kubelet)
    except TlsError:
        return None  # the check of files has that
    return ask(
        PeerAnswer("vn-agent", f"{kubelet.address}:{kubelet.port}", "kubelet"),
        (kubelet.address, kubelet.port),
        context,
        ("/healthz", "/pods"),
        server_name=kubelet.server_name or kubelet.address,
    )
