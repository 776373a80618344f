# SPDX-License-Identifier: Apache-2.0
"""The ring's node: containerd and a kubelet that leave nothing on the machine they run on.

Both live in private mount and process namespaces. When the process namespace ends, the kernel
ends every process in it, containers and their shims included, and with the last of them the mount
namespace and all its mounts: there is nothing to hunt for after a failed run.
"""

from __future__ import annotations

import ipaddress
import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.k8s.build import Binaries
from tests.k8s.ring import cgroups, images
from tests.k8s.ring.certs import CertificateFiles
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.processes import SYSTEM_PATH, RingError, RingProcess, run

KUBELET_PORT = 10250
POD_NETWORK = "10.88.0.0/24"

# The standard path, in the node's own /run: the kubelet's cAdvisor supports no other, and without it
# its page has no container names.
_CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
# The standard path too, where the shipped configuration of kata-bridge expects it.
_NRI_SOCKET = "/run/nri/nri.sock"

# Runc by other names: what RuntimeClasses of Kata's name, without its virtual machine.
KATA_HANDLERS = ("kata", "kata-agent", "kata-stock")
_KATA_RUNTIME = """
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{name}]
runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{name}.options]
BinaryName = "/usr/sbin/runc"
SystemdCgroup = false
"""
# Runc with a network of two families. The kernel makes pods wait before they use an IPv6 address.
DUAL_HANDLER = "dual-stack"
_DUAL_RUNTIME = """
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{name}]
runtime_type = "io.containerd.runc.v2"
cni_conf_dir = "{directory}"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{name}.options]
BinaryName = "/usr/sbin/runc"
SystemdCgroup = false
"""

# On a bridge of its own, as long as no proxy translates traffic between its pods.
_BRIDGE: dict[str, object] = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False}
# A link for each pod: all its traffic crosses the node's own rules, host ports too.
ROUTED: tuple[dict[str, object], ...] = (
    {"type": "ptp", "ipMasq": False},
    {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True},
)

_CNI_NETWORK = "ring"

# Settings that the kubelet would write for the whole machine: it gets copies.
_KERNEL_SETTINGS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
)

# Run as process 1 of the namespaces: mounts, then the program that waits and collects orphans.
# /run, /var/lib and /var/log are fresh: containerd, CNI and the kubelet write to fixed places there.
_INIT = """
set -e
scratch=$1; shift
for setting in "$@"; do
    copy=$scratch/proc/$(echo "$setting" | tr / -)
    cat "/proc/sys/$setting" > "$copy"
    mount --bind "$copy" "/proc/sys/$setting"
done
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib
mount -t tmpfs tmpfs /var/log
mount --make-shared /var/log
mount --bind "$scratch/kubelet" "$scratch/kubelet"
mount --make-shared "$scratch/kubelet"
mkdir -p /run/netns /run/nri
echo 'node log: of no concern to a tenant' > /var/log/node.log
: > "$scratch/mounted"
exec "$scratch/pause"
"""


@dataclass(frozen=True, slots=True)
class KubeletIdentity:
    """The kubelet's certificates: its own, and its clients' authority."""

    serving: CertificateFiles
    client_authority: Path
    kubeconfig: Path


class RealNode:
    """Namespaces, containerd, images and a kubelet, in the order in which they start."""

    def __init__(
        self,
        name: str,
        namespace: NetworkNamespace,
        binaries: Binaries,
        directory: Path,
        identity: KubeletIdentity,
        *,
        group: str = "",
        pod_network: str = POD_NETWORK,
        second_network: str = "",
        cni_plugins: tuple[dict[str, object], ...] = (_BRIDGE,),
        kubelet_settings: Mapping[str, object] | None = None,
    ) -> None:
        """`group` is its control group, by default that of the run; one with a parent has it made before.

        With a `second_network`, of IPv6, pods of DUAL_HANDLER have an address of each.
        """
        self.name = name
        self.pod_network = pod_network
        self._second_network = second_network
        self._cni_plugins = cni_plugins
        self._own_settings = dict(kubelet_settings or {})
        self.namespace = namespace
        self._binaries = binaries
        self._directory = directory
        self._identity = identity
        self._group = group or directory.name
        self._init: RingProcess | None = None
        self._containerd: RingProcess | None = None
        self.kubelet: RingProcess | None = None
        self._kubelet_settings: dict[str, object] = {}
        self._has_nri = True

    @property
    def group(self) -> str:
        """The control group of its pods, below each hierarchy's root."""
        return self._group

    @property
    def has_two_families(self) -> bool:
        return bool(self._second_network)

    def start(self) -> None:
        """Bring the node up as far as a running kubelet; it registers itself after that."""
        for name in ("proc", "kubelet", "cni"):
            (self._directory / name).mkdir()
        cgroups.create(self._group)
        images.compile_pause(self._directory)
        self._start_init()
        self._configure_containerd()
        self.start_containerd()
        self._import_images()
        self._write_kubelet_configuration()
        self.start_kubelet()

    def stop(self) -> None:
        """End every process of the node and remove its control groups."""
        for daemon in (self.kubelet, self._containerd):
            if daemon is not None:
                daemon.stop()
        if self._init is not None:
            # Process 1 ends, and with it, by the kernel's hand, all that is left inside.
            self._init.stop(signal.SIGTERM)
        cgroups.remove(self._group)

    def start_kubelet(self) -> None:
        """Start the kubelet and wait until it serves."""
        self.kubelet = RingProcess(
            "kubelet",
            [
                *self.enter,
                self._binaries["kubelet"],
                f"--config={self._directory / 'kubelet.json'}",
                f"--kubeconfig={self._identity.kubeconfig}",
                f"--hostname-override={self.name}",
                f"--node-ip={self.namespace.address}",
                f"--root-dir={self._directory / 'kubelet'}",
                f"--cert-dir={self._directory / 'kubelet-pki'}",
            ],
            self._directory / "kubelet.log",
            path=self._path,
            enters_pid_namespace=True,
        )

        def listens() -> bool:
            try:
                self.namespace.connect(self.namespace.address, KUBELET_PORT, timeout_s=1).close()
            except OSError:
                return False
            return True

        self.kubelet.wait_until(listens, timeout_s=30)

    def stop_kubelet(self) -> None:
        """Stop the kubelet; containers go on."""
        if self.kubelet is not None:
            self.kubelet.stop()

    @contextmanager
    def kubelet_with(self, settings: Mapping[str, object]) -> Iterator[None]:
        """Within, a kubelet with these fields in its configuration; it is started again twice."""
        self._kubelet_settings = dict(settings)
        try:
            self._start_kubelet_anew()
            yield
        finally:
            self._kubelet_settings = {}
            self._start_kubelet_anew()

    def _start_kubelet_anew(self) -> None:
        self.stop_kubelet()
        self._write_kubelet_configuration()
        self.start_kubelet()

    @property
    def sandboxes(self) -> Path:
        """Where containerd keeps what it writes for each sandbox: its hosts, hostname, resolv.conf."""
        return self._directory / "containerd" / "io.containerd.grpc.v1.cri" / "sandboxes"

    def stop_containerd(self) -> None:
        """Stop containerd; containers go on."""
        if self._containerd is not None:
            self._containerd.stop()

    @contextmanager
    def containerd_without_nri(self) -> Iterator[None]:
        """Within, a containerd that takes no NRI plugins; it is started again twice."""
        self._has_nri = False
        try:
            self._start_containerd_anew()
            yield
        finally:
            self._has_nri = True
            self._start_containerd_anew()

    def _start_containerd_anew(self) -> None:
        self.stop_containerd()
        self._configure_containerd()
        self.start_containerd()

    @property
    def nri_socket(self) -> Path:
        """Where containerd takes NRI plugins, as it is reached from outside the node's mount namespace."""
        return self.outside(_NRI_SOCKET)

    @property
    def cri_socket(self) -> Path:
        """The runtime's own socket, as it is reached from outside the node's mount namespace."""
        return self.outside(_CONTAINERD_SOCKET)

    def outside(self, path: str) -> Path:
        """A path of the node, as it is reached from outside its mount namespace."""
        assert self._init is not None
        # A link that is absolute would lead to the machine's own /run.
        path = path.replace("/var/run/", "/run/", 1) if path.startswith("/var/run/") else path
        return Path(f"/proc/{self._init.pid}/root{path}")

    def give_next(self, address: str) -> bool:
        """Have the next pod get this address; False while a pod still has it.

        The plugin host-local takes the first free one after the last that it gave (its README, `dataDir`).
        """
        records = self.outside(f"/var/lib/cni/networks/{_CNI_NETWORK}")
        if (records / address).exists():
            return False
        (records / "last_reserved_ip.0").write_text(str(ipaddress.ip_address(address) - 1))
        return True

    @property
    def containerd_pid(self) -> int:
        """Of the runtime that runs now."""
        assert self._containerd is not None
        return self._containerd.pid

    def open_files_of_kubelet(self) -> list[str]:
        """What the kubelet's file descriptors point to: which logs it reads, for one."""
        if self.kubelet is None:
            return []
        names = []
        for link in Path(f"/proc/{self.kubelet.pid}/fd").iterdir():
            try:
                names.append(str(link.readlink()))
            except OSError:
                continue
        return names

    @property
    def _path(self) -> str:
        return f"{Path(self._binaries['containerd']).parent}:{SYSTEM_PATH}"

    @property
    def enter(self) -> list[str]:
        """The command prefix that runs a program on the node: in all of its namespaces."""
        assert self._init is not None
        return [
            *("nsenter", f"--target={self._init.pid}", "--mount", "--pid"),
            f"--net={self.namespace.path}",
            *("setpriv", "--pdeathsig", "KILL"),
        ]

    def _start_init(self) -> None:
        self._init = RingProcess(
            "node",
            [
                *("setpriv", "--pdeathsig", "KILL"),
                *("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"),
                *("sh", "-c", _INIT, "init", str(self._directory), *_KERNEL_SETTINGS),
            ],
            self._directory / "node.log",
            enters_pid_namespace=True,
        )
        self._init.wait_until((self._directory / "mounted").exists, timeout_s=10)

    def _configure_containerd(self) -> None:
        dual = self._directory / "cni-dual"
        dual_runtime = (
            _DUAL_RUNTIME.format(name=DUAL_HANDLER, directory=dual) if self.has_two_families else ""
        )
        config = self._directory / "containerd.toml"
        config.write_text(
            f"""version = 3
root = "{self._directory / "containerd"}"
state = "/run/containerd"
[grpc]
address = "{_CONTAINERD_SOCKET}"
[plugins.'io.containerd.internal.v1.opt']
path = "{self._directory / "opt"}"
[plugins.'io.containerd.nri.v1.nri']
disable = {"false" if self._has_nri else "true"}
socket_path = "{_NRI_SOCKET}"
plugin_path = "{self._directory / "nri-plugins"}"
plugin_config_path = "{self._directory / "nri-conf"}"
# It requires a plugin only where a pod's annotation does.
[plugins.'io.containerd.nri.v1.nri'.default_validator]
enable = true
[plugins.'io.containerd.cri.v1.images']
snapshotter = "overlayfs"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{images.PAUSE}"
[plugins.'io.containerd.cri.v1.runtime']
disable_apparmor = true
restrict_oom_score_adj = true
enable_cdi = false
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "{self._directory / "cni"}"
[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = "runc"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = "/usr/sbin/runc"
SystemdCgroup = false
{"".join(_KATA_RUNTIME.format(name=name) for name in KATA_HANDLERS)}
{dual_runtime}
"""
        )
        self._write_cni(self._directory / "cni", [self.pod_network])
        if self.has_two_families:
            self._write_cni(dual, [self.pod_network, self._second_network])

    def _write_cni(self, directory: Path, pod_networks: list[str]) -> None:
        """The networks of a directory have one name, so that no address is given twice."""
        directory.mkdir(exist_ok=True)
        default = ("::/0" if ":" in each else "0.0.0.0/0" for each in pod_networks)
        (directory / "10-ring.conflist").write_text(
            json.dumps(
                {
                    "cniVersion": "1.0.0",
                    "name": _CNI_NETWORK,
                    "plugins": [
                        {
                            **self._cni_plugins[0],
                            "ipam": {
                                "type": "host-local",
                                "ranges": [[{"subnet": each}] for each in pod_networks],
                                "routes": [{"dst": each} for each in default],
                            },
                        },
                        *self._cni_plugins[1:],
                    ],
                }
            )
        )

    def start_containerd(self) -> None:
        """Start containerd and wait until it serves; it finds the containers of an earlier one."""
        self._containerd = RingProcess(
            "containerd",
            [
                *self.enter,
                *(self._binaries["containerd"], "--config", str(self._directory / "containerd.toml")),
            ],
            self._directory / "containerd.log",
            path=self._path,
            enters_pid_namespace=True,
        )

        def is_serving() -> bool:
            try:
                run([*self._ctr, "version"], timeout_s=5)
            except RingError:
                return False
            return True

        self._containerd.wait_until(is_serving, timeout_s=20)

    @property
    def _ctr(self) -> list[str]:
        return [*self.enter, self._binaries["ctr"], "--address", _CONTAINERD_SOCKET]

    def _import_images(self) -> None:
        pause, busybox = self._directory / "pause.tar", self._directory / "busybox.tar"
        images.write_pause_image(pause, self._directory / "pause")
        images.write_busybox_image(busybox)
        for archive in (pause, busybox):
            self.import_image(archive)

    def import_image(self, archive: Path) -> None:
        """Import an image from a tar."""
        run([*self._ctr, "--namespace", "k8s.io", "images", "import", str(archive)])

    def _write_kubelet_configuration(self) -> None:
        configuration = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.namespace.address,
            "port": KUBELET_PORT,
            "readOnlyPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self._identity.client_authority)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(self._identity.serving.certificate),
            "tlsPrivateKeyFile": str(self._identity.serving.key),
            "containerRuntimeEndpoint": f"unix://{_CONTAINERD_SOCKET}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._group}",
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            "volumePluginDir": str(self._directory / "kubelet" / "volume-plugins"),
            # A full disk or little memory on the test machine is no reason to evict test pods.
            "evictionHard": {"memory.available": "16Mi", "nodefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            **self._own_settings,
            **self._kubelet_settings,
        }
        (self._directory / "kubelet.json").write_text(json.dumps(configuration))
