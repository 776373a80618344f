# SPDX-License-Identifier: Apache-2.0
"""`lab/topology.env`, which the provisioning scripts and the Vagrantfile read too."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

LAB = Path(__file__).resolve().parents[2] / "lab"


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker node; `pods` is the network of its pods."""

    name: str
    address: str
    pods: str


@dataclass(frozen=True, slots=True)
class Topology:
    """Machines, tenants, and what both use."""

    control: str
    control_address: str
    workers: tuple[Worker, ...]
    tenants: tuple[str, ...]
    service_cidr: str
    busybox_image: str
    coredns_image: str


def read() -> Topology:
    """As the file has it."""
    lines = shlex.split((LAB / "topology.env").read_text(encoding="utf-8"), comments=True)
    values = dict(line.split("=", 1) for line in lines)
    return Topology(
        control=values["CONTROL"],
        control_address=values["CONTROL_ADDRESS"],
        workers=tuple(Worker(*entry.split(",")) for entry in values["WORKERS"].split()),
        tenants=tuple(values["TENANTS"].split()),
        service_cidr=values["SERVICE_CIDR"],
        busybox_image=values["BUSYBOX_IMAGE"],
        coredns_image=values["COREDNS_IMAGE"],
    )
