# SPDX-License-Identifier: Apache-2.0
"""`python -m vnagent --config FILE [--check-config]`."""

import sys

from daemonkit import logs
from daemonkit.run.command_line import load_or_exit, parse_arguments
from daemonkit.run.lifecycle import Lifecycle, run
from vnagent.config import load
from vnagent.service import LISTENER, Service
from vnagent.start_check import start_problems
from vnagent.token_listeners import kept_name
from vnagent.transport.event_loop import AgentLoop

# The first argument of a worker, which the main process starts.
WORKER = "--worker"


def main(argv: list[str] | None = None) -> int:
    """Run the daemon; the exit code is 2 for a configuration that cannot be used."""
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == [WORKER]:
        from vnagent.workers.process import main as run_worker

        return run_worker(argv)
    arguments = parse_arguments("vn-agent", argv)
    logs.setup()
    config = load_or_exit(arguments, load, start_problems)

    async def body(life: Lifecycle) -> int:
        address = config.listen.address
        ports = {LISTENER: config.listen.port}
        ports |= {kept_name(each.port): each.port for each in config.token_listeners}
        kept = life.manager.take_listeners(address, ports)
        return await Service(config, kept).run(life)

    return run(body, loop_factory=AgentLoop)


if __name__ == "__main__":
    sys.exit(main())
