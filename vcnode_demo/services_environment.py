# SPDX-License-Identifier: Apache-2.0
"""The environment of the Services scenario: two VPCs with guests, kata-bridge, kubeproxy-ext, guest agents.

The super cluster is a fake, all else is real; guests are network namespaces instead of VMs.
"""

import contextlib
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tenancy import keys
from vcnode_demo.guest import Guest
from vcnode_demo.super_cluster import FakeSuperCluster
from vcnode_demo.vpc_environment import VpcEnvironment

FRONT, SHOPS = "10.0.0.10", {"shop-1": "10.0.0.21", "shop-2": "10.0.0.22"}
SHOP_PORT = 8080
TENANTS_IP = "10.32.0.10"
SUPER_IPS = {"acme": "10.96.0.11", "globex": "10.96.0.12"}
SUPER_RANGE, TENANTS_RANGE = "10.96.0.0/16", "10.32.0.0/16"
NAMESPACE = "web"
_LOG_LINES = 10


@dataclass(slots=True)
class TenantPods:
    """A tenant's pods: `front` is the client's guest, `shops` are the endpoints of its Service."""

    tenant: str
    key: str
    namespace: str = ""
    front: Guest = field(init=False)
    shops: dict[str, Guest] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.front = Guest(f"{self.tenant} front")

    @property
    def sandbox(self) -> str:
        """The id of the front's sandbox."""
        return f"{self.tenant}-front"


class ServicesEnvironment(VpcEnvironment):
    """`open` and `close`; its objects in the super cluster stay."""

    def __init__(
        self,
        directory: Path,
        super_cluster: FakeSuperCluster,
        tenants: dict[str, str],
        *,
        run_by: tuple[str, ...] = (),
    ) -> None:
        """`tenants` are the cluster keys by name, all else is as in `VpcEnvironment`."""
        sandboxes = {
            "sandboxes": {"directory": str(directory / "guests")},
            "agent": {"socket": str(directory / "agents.sock")},
        }
        super().__init__(directory, super_cluster, sandboxes=sandboxes, run_by=run_by)
        self.tenants = {name: TenantPods(name, key) for name, key in tenants.items()}
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        config = {
            "serviceCIDRs": [SUPER_RANGE],
            "tenants": [{"key": key, "serviceCIDRs": [TENANTS_RANGE]} for key in tenants.values()],
        }
        self.proxy = self._bridge_user("kubeproxy-ext", "kubeproxy_ext", "KubeproxyExtConfiguration", config)

    # ---- life

    def open(self) -> None:
        """Start everything. Raises ToolError."""
        self.super_cluster.add_node()
        self._ending.callback(self.vpcs.stop)
        self.vpcs.start()
        (self.directory / "guests").mkdir()
        for vpc in self.tenants.values():
            self._fill(vpc)
        for daemon in (self.bridge, self.proxy):
            self._ending.callback(daemon.stop)
            daemon.launch()
        for vpc in self.tenants.values():
            self._start_agent(vpc)
        for daemon in (self.bridge, self.proxy):
            daemon.wait()

    def _fill(self, vpc: TenantPods) -> None:
        """Make a tenant's VPC with its pods, and the file of the guest among them for kata-bridge."""
        vpc.namespace = self.super_cluster.add_namespace(vpc.key, NAMESPACE)
        self.vpcs.make(vpc.tenant)
        vpc.shops = {name: Guest(f"{vpc.tenant} {name}") for name in SHOPS}
        pods = {"front": (vpc.front, FRONT)}
        pods |= {name: (guest, SHOPS[name]) for name, guest in vpc.shops.items()}
        for guest, _ in pods.values():
            self._ending.callback(guest.stop)
            guest.start()
        for name, (guest, address) in pods.items():
            self.vpcs.join(vpc.tenant, guest, f"{vpc.tenant}-{name}", address)
        for name, guest in vpc.shops.items():
            guest.serve(SHOP_PORT, f"{vpc.tenant}'s {name}")
        document = {
            "apiVersion": keys.API_VERSION,
            "kind": "Guest",
            "namespace": vpc.namespace,
            "name": "front",
            "tenant": vpc.key,
            "tenantNamespace": NAMESPACE,
            "ips": [FRONT],
        }
        (self.directory / "guests" / f"{vpc.sandbox}.yaml").write_text(yaml.safe_dump(document))

    def _start_agent(self, vpc: TenantPods) -> None:
        """Start our agent in a guest: it waits for its certificate, and dials the node."""
        state = self.directory / "agents" / vpc.tenant
        state.mkdir(parents=True)
        command = vpc.front.command(
            sys.executable,
            "-m",
            "guest_agent",
            "--node",
            f"unix:{self.directory / 'agents.sock'}",
            "--credentials",
            str(self.directory / "bridge" / "sandboxes" / vpc.sandbox),
            "--state",
            str(state),
            "--resolv-conf",
            str(state / "resolv.conf"),
        )
        with self._agent_log(vpc).open("wb") as log:
            process = subprocess.Popen(command, stderr=log, stdin=subprocess.DEVNULL)  # noqa: S603 - our own program
        self._agents[vpc.tenant] = process
        self._ending.callback(_end, process)

    def _agent_log(self, vpc: TenantPods) -> Path:
        return self.directory / f"guest-agent-{vpc.tenant}.log"

    def last_log_lines(self) -> list[str]:
        """Of all daemons and agents."""
        lines = [*self.bridge.last_log_lines(), *self.proxy.last_log_lines()]
        for vpc in self.tenants.values():
            with contextlib.suppress(FileNotFoundError):
                last = self._agent_log(vpc).read_text(errors="replace").splitlines()[-_LOG_LINES:]
                lines += [f"{vpc.tenant}'s guest agent log: {line}" for line in last]
        return lines

    # ---- changes

    def put_service(self, tenant: str, shops: tuple[str, ...]) -> None:
        """Put the tenant's Service web/shop, with these pods as endpoints, into the super cluster."""
        namespace = self.tenants[tenant].namespace
        self.super_cluster.put_service(
            namespace, "shop", SUPER_IPS[tenant], TENANTS_IP, 80, _endpoints(shops)
        )

    def put_endpoints(self, tenant: str, shops: tuple[str, ...]) -> None:
        """Make these pods the endpoints of the tenant's web/shop."""
        self.super_cluster.put_endpoints(self.tenants[tenant].namespace, "shop", _endpoints(shops))


def _endpoints(shops: tuple[str, ...]) -> list[str]:
    return [f"{SHOPS[name]}:{SHOP_PORT}" for name in shops]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
