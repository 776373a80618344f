# SPDX-License-Identifier: Apache-2.0
"""What a person asks for: one verb with its arguments."""

from typing import NamedTuple

from tenancy import keys

DEFAULT_TIMEOUT_S = 600
# A new control plane is ready in seconds. What takes longer than this waits for something that is missing.
CREATE_TIMEOUT_S = 300
ALL = "all"
WHAT_ROTATES = (*keys.ROTATABLE, ALL)
# The verb that kubeconfigs name, and no help shows.
CREDENTIAL = "credential"


class Scope(NamedTuple):
    """Which super cluster, as whom, and in which namespace. What is empty is as the kubeconfig has it."""

    namespace: str = ""
    kubeconfig: str = ""
    context: str = ""
    cluster: str = ""
    user: str = ""
    as_user: str = ""
    as_groups: tuple[str, ...] = ()
    as_uid: str = ""
    request_timeout: str = ""
    cache_dir: str = ""

    def flags(self) -> list[str]:
        """Of kubectl, except the namespace: that of an object is known from the object."""
        given = (
            ("--kubeconfig", self.kubeconfig),
            ("--context", self.context),
            ("--cluster", self.cluster),
            ("--user", self.user),
            ("--as", self.as_user),
            *(("--as-group", group) for group in self.as_groups),
            ("--as-uid", self.as_uid),
            ("--request-timeout", self.request_timeout),
            ("--cache-dir", self.cache_dir),
        )
        return [f"{flag}={value}" for flag, value in given if value]


class Command(NamedTuple):
    """One call. Each verb uses the fields that it has flags for.

    `output` is a format, and of the verb `kubeconfig` a file (`-`: stdout). `names` are of VirtualClusters,
    or of what to rotate.
    """

    verb: str
    scope: Scope = Scope()
    name: str = ""
    names: tuple[str, ...] = ()
    output: str = ""
    is_all_namespaces: bool = False
    cluster_version: str = ""
    size_class: str = ""
    service_cidr: str = ""
    cluster_domain: str = ""
    can_merge: bool = False
    can_confirm: bool = False
    can_revoke: bool = False
    backup: str = ""
    new_name: str = ""
    webhook: str = ""
    keeps_volumes: bool = False
    is_confirmed: bool = False
    waits: bool = False
    timeout_s: float = DEFAULT_TIMEOUT_S
