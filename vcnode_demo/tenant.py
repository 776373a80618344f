# SPDX-License-Identifier: Apache-2.0
"""A tenant of the demo, with its certificates."""

from dataclasses import dataclass

from devkit.pki import Authority, Leaf


@dataclass(frozen=True, slots=True)
class DemoTenant:
    """A tenant with its authority and the three certificates that it has issued."""

    name: str
    key: str
    authority: Authority
    apiserver: Leaf
    metrics: Leaf
    admin: Leaf
