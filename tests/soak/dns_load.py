# SPDX-License-Identifier: Apache-2.0
"""The load of one tenant on dnsconfig and kata-bridge's start gate: names of its networks, in its pods.

All networks have the same addresses. A resolv.conf outlives the daemons, so no lookup may fail.
"""

from functools import partial
from itertools import cycle

from tests.soak.answers import OK
from tests.soak.load import LoadThread
from tests.soak.node import SoakNode
from tests.soak.recorder import LeakError, Recorder
from tests.waiting import holds_within
from vcnode_demo.dns_environment import NETWORKS, NEW_SERVER_IP, SERVER_IP, DnsPod

# Longer than any fault, on a busy machine.
LATE_S = 180.0
_REST_S = 0.5


class DnsLoad:
    """One thread of one tenant, which alone speaks to the tenant's pods."""

    def __init__(self, node: SoakNode, tenant: str, recorder: Recorder) -> None:
        self._environment = node.dns
        self._tenant = tenant
        self._recorder = recorder
        self._networks = [network for network in NETWORKS if network.tenant == tenant]
        self._servers = cycle((NEW_SERVER_IP, SERVER_IP))

    def thread(self) -> LoadThread:
        """The networks and their pods exist from now on."""
        for network in self._networks:
            self._environment.put_network(network, SERVER_IP)
            self._environment.start_server(network, NEW_SERVER_IP, network.names())
            pod = self._environment.start_pod(network)
            self._recorder.ask("first container", self._tenant, partial(self._started, pod))
        name = f"names of {self._tenant}"
        return LoadThread(name, self._recorder, self.round, least_rest_s=_REST_S, is_patient=True)

    def round(self) -> bool:
        """The DNS servers move; then each pod looks up all names of all networks."""
        server = next(self._servers)
        for network in self._networks:
            self._environment.put_network(network, server)
        pods = [self._environment.pods[network] for network in self._networks]
        return all(
            self._recorder.ask("moved DNS server", self._tenant, partial(self._moved, pod, server))
            for pod in pods
        ) and all(self._recorder.ask("lookups", self._tenant, partial(self._looked_up, pod)) for pod in pods)

    def _started(self, pod: DnsPod) -> str:
        why = ""

        def try_start() -> bool:
            nonlocal why
            why = self._environment.try_container(pod)
            return not why

        return OK if holds_within(try_start, LATE_S) else f"denied: {why}"

    def _moved(self, pod: DnsPod, server: str) -> str:
        wanted = f"nameserver {server}"
        if holds_within(lambda: wanted in pod.app.resolv_conf().splitlines(), LATE_S):
            return OK
        return f"the resolv.conf of {pod.shown} had no {server} within {LATE_S:.0f} s"

    def _looked_up(self, pod: DnsPod) -> str:
        for name in dict.fromkeys(name for network in NETWORKS for name in network.services):
            found, own = pod.app.lookup(name), pod.network.services.get(name)
            if own is None and found.addresses:
                raise LeakError(f"{pod.shown} resolves {name} of another network: {found.addresses}")
            if own is not None and any(address != own for address in found.addresses):
                raise LeakError(f"{pod.shown} resolves {name} to {found.addresses} instead of {own}")
            if own is not None and not found.addresses:
                return f"{pod.shown} does not resolve {name}: {found.error}"
        return OK
