# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.cases.compiled TREE [arguments of tests.cases]`: the cases against vn-agent as
packages install it.

TREE is what `packaging/tree.py` made. First the daemon of the tree is asked what it is made of: a
tree whose byte path is not compiled would pass every case and show nothing.
"""

import subprocess
import sys
from pathlib import Path

from tests.cases.__main__ import main as run_cases
from tests.cases.daemon import VnAgentProcess

_ASKS = (
    "import sys; sys.path.insert(0, sys.argv[1]); import vnagent.transport.poller as compiled;"
    " print(compiled.__file__)"
)


def main() -> int:
    tree = Path(sys.argv[1]).resolve()
    asked = subprocess.run(
        [sys.executable, "-I", "-c", _ASKS, str(tree)], capture_output=True, text=True, check=False
    )
    file = asked.stdout.strip()
    if not (file.endswith(".so") and Path(file).is_relative_to(tree)):
        sys.stderr.write(f"{tree}: the byte path is not compiled: {file or asked.stderr}\n")
        return 2
    VnAgentProcess.tree = tree
    return run_cases(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
