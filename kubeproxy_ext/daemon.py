# SPDX-License-Identifier: Apache-2.0
"""`python -m kubeproxy_ext --config FILE [--check-config]`: the daemon, from its arguments on.

Apart from `__main__` so that what only renders does not load gRPC.
"""

from daemonkit import logs
from daemonkit.malloc import return_large_blocks
from daemonkit.run import lifecycle
from daemonkit.run.lifecycle import Lifecycle
from kubeproxy_ext.config import load
from kubeproxy_ext.service import Service


def main(argv: list[str]) -> int:
    """Run the daemon; the exit code is 2 for a configuration that cannot be used."""
    return_large_blocks()  # 4 MB of the resident set at 1 000 Services
    arguments = lifecycle.parse_arguments("kubeproxy-ext", argv)
    logs.setup()
    config = lifecycle.configured(arguments, load)

    async def body(life: Lifecycle) -> int:
        return await Service(config).run(life)

    return lifecycle.run(body)
