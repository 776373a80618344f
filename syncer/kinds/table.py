# SPDX-License-Identifier: Apache-2.0
"""All kinds that are synced without being named in the configuration. Pure."""

from syncer.kinds import configmap
from syncer.kinds.port import KindSync

KINDS: tuple[KindSync, ...] = (configmap.SYNC,)
