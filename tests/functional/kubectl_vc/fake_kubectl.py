# SPDX-License-Identifier: Apache-2.0
"""A program that stands where kubectl does: prints what `answers` has for its words, and notes each call.

`answers` is a file of JSON, a list of objects with `words` (which the call must have), and `out`, `err`,
`code` and `hangs` (it prints, and goes on until it is ended). The first that fits is taken. The file beside
it, with the ending `.calls`, gets a line of JSON for each call.
"""

import json
import os
import signal
import sys
from pathlib import Path

ANSWERS = "FAKE_KUBECTL_ANSWERS"


def main() -> int:
    answers = Path(os.environ[ANSWERS])  # noqa: TID251 - its only argument; the others are kubectl's
    words = sys.argv[1:]
    typed = sys.stdin.read() if "--filename=-" in words else ""
    noted = {"words": words, "in": typed, "KUBECONFIG": os.environ.get("KUBECONFIG", "")}  # noqa: TID251 - as above
    with answers.with_suffix(".calls").open("a") as calls:
        calls.write(f"{json.dumps(noted)}\n")
    for each in json.loads(answers.read_text()):
        if all(word in words for word in each["words"]):
            sys.stderr.write(each.get("err", ""))
            sys.stdout.write(each.get("out", ""))
            sys.stdout.flush()
            if each.get("hangs"):
                signal.pause()
            return int(each.get("code", 0))
    sys.stderr.write(f"error: no answer for {words}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
