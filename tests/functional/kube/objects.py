# SPDX-License-Identifier: Apache-2.0
import msgspec

from daemonkit.kube.resources import ObjectMeta


class ConfigMap(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}
