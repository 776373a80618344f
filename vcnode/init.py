# SPDX-License-Identifier: Apache-2.0
"""`vcnode init ca|node|bundle|scraper|certificates`: certificates and configuration of a node's daemons."""

import argparse
import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vcnode.core.init_plan import TENANT_FILES, VIRTUAL_CLUSTERS, NodeDaemon
from vcnode.output import add_output
from vcnode.terminal import Terminal

_DESCRIPTION = """
Make a node ready to start its daemons: keys and certificates in /etc/vcnode/pki, kubeconfigs, commented
configuration, and the daemons' rights as files for kubectl. Whatever is there and valid stays: a second run
changes nothing, and renews a certificate in the last third of its life.
"""
_METRICS = "certificates of scrapers, and of the listeners that they scrape"


def add_to(verbs: Any) -> None:
    """Add the verb and its verbs to the command line."""
    parser = verbs.add_parser(
        "init",
        help="make a node ready to start: certificates, configuration, rights",
        description=_DESCRIPTION,
        allow_abbrev=False,
    )
    own = parser.add_subparsers(metavar="VERB", required=True)
    authority = own.add_parser(
        "ca",
        help="create authorities for client and serving certificates",
        description="Create authorities in a directory, which belongs on no node. What is there stays.",
        allow_abbrev=False,
    )
    authority.add_argument("directory", type=Path, metavar="DIRECTORY", help="made if needed, mode 0700")
    authority.add_argument(
        "--only",
        choices=("client", "serving", "metrics"),
        help="one authority; default: client-ca and serving-ca. metrics-ca is for scrapers",
    )
    _add_days(authority, 3650)
    add_output(authority)
    authority.set_defaults(run=run_ca)

    node = own.add_parser(
        "node",
        help="on the node: write all files of its daemons",
        description="Write all files of this node's daemons, with certificates that are issued here, or from"
        " a bundle.",
        allow_abbrev=False,
    )
    _add_node(node)
    _add_authorities(node)
    node.add_argument(
        "--bundle",
        type=Path,
        metavar="DIR",
        help="certificates from `vcnode init bundle`, or Secrets of cert-manager: NAME/tls.crt and"
        " NAME/tls.key, super-ca.crt, kubelet-ca.crt, vn-agent-ca.crt, scrapers-ca.crt",
    )
    node.add_argument("--force", action="store_true", help="replace configuration that has been edited")
    node.add_argument("--dry-run", action="store_true", help="print what would be done")
    node.add_argument(
        "--root", type=Path, default=Path("/"), metavar="DIR", help="root of another file system, for images"
    )
    _add_manifests(node)
    add_output(node)
    node.set_defaults(run=run_node)

    bundle = own.add_parser(
        "bundle",
        help="elsewhere: issue a node's certificates into a directory",
        description="Issue the certificates of a node into a directory, where the authorities' keys are."
        " Copy it to the node, run `vcnode init node --bundle DIR` there, and remove it.",
        allow_abbrev=False,
    )
    _add_node(bundle)
    _add_authorities(bundle)
    bundle.add_argument("--out", type=Path, required=True, metavar="DIR", help="made if needed, mode 0700")
    _add_manifests(bundle)
    add_output(bundle)
    bundle.set_defaults(run=run_bundle)

    scraper = own.add_parser(
        "scraper",
        help="issue a scraper's certificate into a directory",
        description="Issue the client certificate of a scraper, such as Prometheus: tls.crt, tls.key, and"
        " ca.crt, which verifies the daemons. Nodes whose `init` had --scraper NAME serve it metrics.",
        allow_abbrev=False,
    )
    scraper.add_argument("name", metavar="NAME", help="common name, such as prometheus")
    scraper.add_argument("--out", type=Path, required=True, metavar="DIR", help="made if needed, mode 0700")
    _add_ca_directory(scraper)
    _add_issuing(scraper, "metrics", _METRICS)
    _add_renewal(scraper)
    add_output(scraper)
    scraper.set_defaults(run=run_scraper)

    manager = own.add_parser(
        "certificates",
        help="print cert-manager's Certificates for a node",
        description="Print cert-manager's Certificate objects for a node. Their Secrets, as files, are a"
        " bundle for `vcnode init node`.",
        allow_abbrev=False,
    )
    _add_node(manager)
    for kind, whom in (
        ("client", "client certificates for the super cluster"),
        ("kubelet-client", "vn-agent's client certificate for the kubelet (default: the client issuer)"),
        ("serving", "vn-agent's serving certificate"),
        ("metrics", _METRICS),
    ):
        manager.add_argument(f"--{kind}-issuer", metavar="NAME", help=f"issuer of {whom}")
    manager.add_argument("--issuer-kind", choices=("Issuer", "ClusterIssuer"), default="ClusterIssuer")
    manager.add_argument("--namespace", default="vcnode-system", metavar="NAME", help="default: %(default)s")
    add_output(manager)
    manager.set_defaults(run=run_certificates)


def _add_manifests(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--manifests", type=Path, metavar="DIR", help="the daemons' rights as shipped (packaging/rbac)"
    )


def _add_node(parser: argparse.ArgumentParser) -> None:
    own = parser.add_argument_group("the node")
    own.add_argument(
        "--node-name", metavar="NAME", help="name of its Node object; `node`: default this host's"
    )
    own.add_argument("--address", metavar="IP", help="address at which tenants' apiservers reach vn-agent")
    own.add_argument(
        "--name",
        action="append",
        metavar="NAME",
        help="a further DNS name or address in vn-agent's certificate; repeat for more",
    )
    own.add_argument("--server", metavar="URL", help="the super cluster's API server: https://HOST:PORT")
    own.add_argument(
        "--service-cidr",
        action="append",
        metavar="CIDR",
        help="service range of the super cluster; repeat for more",
    )
    own.add_argument(
        "--resolv-conf", metavar="PATH", help="the kubelet's resolvConf; default /etc/resolv.conf"
    )
    own.add_argument(
        "--daemons",
        metavar="NAME,...",
        help=f"of {', '.join(daemon.value for daemon in NodeDaemon)}; `node`: default those with a package",
    )
    own.add_argument(
        "--tenants",
        choices=(TENANT_FILES, VIRTUAL_CLUSTERS),
        help="how vn-agent knows tenants: by files of `vcnode tenant add` (default), or by VirtualCluster"
        " objects, as vc-operator makes them",
    )
    own.add_argument(
        "--scraper",
        action="append",
        metavar="NAME",
        help="common name of a certificate that may read metrics from another machine; repeat for more",
    )


def _add_authorities(parser: argparse.ArgumentParser) -> None:
    own = parser.add_argument_group("authorities")
    own.add_argument(
        "--super-ca", type=Path, metavar="FILE", help="authority of the super cluster's API server"
    )
    own.add_argument("--kubelet-ca", type=Path, metavar="FILE", help="authority of the kubelet's certificate")
    own.add_argument(
        "--scraper-ca",
        type=Path,
        metavar="FILE",
        help="authority of scrapers' certificates; default: what is there, else the one of metrics",
    )
    _add_ca_directory(own)
    for kind, whom in (
        ("client", "client certificates for the super cluster (kubeadm: /etc/kubernetes/pki/ca.crt)"),
        ("kubelet-client", "vn-agent's client certificate for the kubelet; default: that of clients"),
        (
            "serving",
            "vn-agent's serving certificate: tenants' --kubelet-certificate-authority; vc-operator: no key",
        ),
        ("metrics", _METRICS),
    ):
        _add_issuing(own, kind, whom)
    _add_renewal(own)


def _add_ca_directory(parser: Any) -> None:
    parser.add_argument(
        "--ca-directory",
        type=Path,
        metavar="DIR",
        help="authorities from `vcnode init ca`, unless options name others",
    )


def _add_issuing(parser: Any, kind: str, whom: str) -> None:
    parser.add_argument(f"--{kind}-ca", type=Path, metavar="FILE", help=f"issues {whom}")
    parser.add_argument(f"--{kind}-ca-key", type=Path, metavar="FILE", help="its key")


def _add_renewal(parser: Any) -> None:
    _add_days(parser, 365)
    parser.add_argument("--renew", action="store_true", help="replace certificates that are still valid")


def _add_days(parser: Any, default: int) -> None:
    parser.add_argument(
        "--days",
        type=_days,
        default=default,
        metavar="N",
        help="how long new certificates are valid (default: %(default)s)",
    )


def _days(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 36500):
        raise argparse.ArgumentTypeError(f"expected 1 to 36500 days, got {text!r}")
    return int(text)


# Only these load `cryptography`, which takes longer than most verbs.
def run_ca(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from vcnode import init_ca

    return init_ca.run(arguments, terminal)


def run_node(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from vcnode import init_node

    with _long_names():
        return init_node.run(arguments, terminal)


def run_bundle(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from vcnode import init_bundle

    with _long_names():
        return init_bundle.run(arguments, terminal)


def run_scraper(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from vcnode import init_bundle

    return init_bundle.run_scraper(arguments, terminal)


def run_certificates(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from vcnode import init_bundle

    return init_bundle.run_certificates(arguments, terminal)


@contextlib.contextmanager
def _long_names() -> Iterator[None]:
    """Without the warnings of `cryptography` about users of nodes with long names."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Attribute's length must be", UserWarning)
        yield
