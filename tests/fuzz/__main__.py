# SPDX-License-Identifier: Apache-2.0
"""Fuzzes targets: `python -m tests.fuzz [TARGET ...] [--seconds N] [--merge] [--require]`.

Each target runs in a process of its own, for N seconds. What the fuzzer learns stays in
`build/fuzz/TARGET/corpus`. `--merge` keeps the smallest part of it with the same coverage in the target's
folder of `tests/fuzz/corpus`. An input that breaks an invariant, takes too long or too much memory is written
to `build/fuzz/TARGET/`. The command that repeats it is printed, `python -m tests.fuzz TARGET --input FILE`,
which needs no fuzzer. The last line is `N passed, N failed`. Without atheris one line says so (exit code 1
with `--require`).
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz.fuzzer_log import FuzzFigures, figures
from tests.fuzz.target import CORPUS, corpus_of, load, names

DIRECTORY = Path("build/fuzz")
# For one input. All take milliseconds: this is ten thousand times as much, on a loaded machine too.
_INPUT_TIMEOUT_S = 20
_RSS_LIMIT_MB = 1024
_EXCEPTION = " === Uncaught"
_SHOWN_LINES, _SHOWN_CHARACTERS = 40, 300
# A target that has not ended this long after its time is killed.
_GRACE_S = 120
# Larger inputs have their structure from edits of seeds, which grow in memory and not in the corpus.
_MAX_CORPUS_INPUT_BYTES = 1024
_SEED = re.compile(r"^INFO: Seed: (\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FuzzRun:
    """The result of one target. `findings` are inputs; `done.edges` is its coverage."""

    name: str
    code: int
    done: FuzzFigures
    seconds: float
    findings: tuple[Path, ...]
    log: Path


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the arguments name and print a line for each target."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(names())}; default: all")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default: %(default)s)")
    parser.add_argument("--input", type=Path, help="check this one input, without the fuzzer")
    parser.add_argument("--merge", action="store_true", help="minimise into the corpus that is checked in")
    parser.add_argument("--require", action="store_true", help="fail where atheris is missing")
    chosen = parser.parse_args(argv)
    unknown = sorted(set(chosen.targets) - set(names()))
    if unknown:
        parser.error(f"no target {', '.join(unknown)}; there are {', '.join(names())}")
    targets = chosen.targets or names()
    if chosen.input is not None:
        load(targets[0]).one_input(chosen.input.read_bytes())
        sys.stdout.write(f"fuzz: {targets[0]} {chosen.input}: holds\n")
        return 0
    if find_spec("atheris") is None:
        sys.stdout.write(
            "fuzz ring: LEFT OUT, it needs atheris, which has wheels for CPython on x86-64 alone\n"
        )
        return 1 if chosen.require else 0
    runs = [_run(name, chosen.seconds) for name in targets]
    if chosen.merge:
        for each in runs:
            _merge(each.name)
    failed = [each for each in runs if each.code]
    sys.stdout.write(f"{len(runs) - len(failed)} passed, {len(failed)} failed\n")
    return 1 if failed else 0


def _run(name: str, seconds: int) -> FuzzRun:
    folder = DIRECTORY / name
    (folder / "corpus").mkdir(parents=True, exist_ok=True)
    dictionary, seeds = _write_seeds(name, folder)
    known = set(folder.glob("*-*"))
    log = folder / "log"
    command = [
        *(sys.executable, "-m", "tests.fuzz.worker", name),
        *(f"-max_total_time={seconds}", f"-timeout={_INPUT_TIMEOUT_S}", f"-rss_limit_mb={_RSS_LIMIT_MB}"),
        *(f"-max_len={load(name).max_bytes}", f"-artifact_prefix={folder}/", f"-dict={dictionary}"),
        *(str(folder / "corpus"), str(seeds), str(CORPUS / name)),
    ]
    began = time.monotonic()
    code = _logged(command, log, seconds + _GRACE_S)
    took_s = time.monotonic() - began
    text = log.read_text(encoding="utf-8", errors="replace")
    done = figures(text)
    # A process that ended well has fuzzed: otherwise a fuzzer that only replays the corpus would pass.
    code = code or (0 if done.executions else 1)
    found = tuple(sorted(set(folder.glob("*-*")) - known))
    run = FuzzRun(name, code, done, took_s, found, log)
    _report(run, _SEED.search(text))
    return run


def _write_seeds(name: str, folder: Path) -> tuple[Path, Path]:
    target = load(name)
    dictionary = folder / "dictionary"
    dictionary.write_text("".join(f'"{_quoted(token)}"\n' for token in target.tokens if token))
    seeds = folder / "seeds"
    shutil.rmtree(seeds, ignore_errors=True)
    seeds.mkdir()
    for number, seed in enumerate(target.seeds):
        if len(seed) <= target.max_bytes:
            (seeds / f"{number}").write_bytes(seed)
        (seeds / f"{number}-edited").write_bytes(bytes((0xFF, number)))
    (CORPUS / name).mkdir(parents=True, exist_ok=True)
    return dictionary, seeds


def _quoted(token: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in token)


def _logged(command: Sequence[str], log: Path, within_s: float) -> int:
    """The exit code of a command; 124 if it did not end in time."""
    with log.open("wb") as file:
        # It ends with this process, also where that is killed.
        bound = ("setpriv", "--pdeathsig", "KILL", *command)
        process = subprocess.Popen(bound, stdout=file, stderr=subprocess.STDOUT)
        try:
            return process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return 124


def _report(run: FuzzRun, seed: re.Match[str] | None) -> None:
    word = "ok" if not run.code else "FAILED"
    sys.stdout.write(
        f"fuzz: {run.name:<14} {run.done.executions:>10} executions {run.done.edges:>6} edges"
        f" {run.done.features:>7} features {run.seconds:>5.0f} s  {word}\n"
    )
    if run.code:
        text = run.log.read_text(encoding="utf-8", errors="replace")
        lines = text[max(text.find(_EXCEPTION), 0) :].splitlines()[-_SHOWN_LINES:]
        sys.stdout.write("".join(f"    {line[:_SHOWN_CHARACTERS]}\n" for line in lines))
        sys.stdout.write(
            f"fuzz: {run.name}: exit code {run.code}, seed {seed[1] if seed else '?'}, {run.log}\n"
        )
    for path in run.findings:
        sys.stdout.write(
            f"fuzz: repeat it: {os.path.relpath(sys.executable)} -m tests.fuzz {run.name} --input {path}\n"
        )
    sys.stdout.flush()


def _merge(name: str) -> None:
    """Keep the smallest inputs that together have the coverage of all that is known."""
    folder = DIRECTORY / name
    merged = folder / "merged"
    shutil.rmtree(merged, ignore_errors=True)
    merged.mkdir()
    command = [
        *(sys.executable, "-m", "tests.fuzz.worker", name),
        *("-set_cover_merge=1", f"-max_len={_MAX_CORPUS_INPUT_BYTES}", f"-rss_limit_mb={_RSS_LIMIT_MB}"),
        *(str(merged), str(CORPUS / name), str(folder / "corpus")),
    ]
    if _logged(command, folder / "merge.log", 600) or not any(merged.iterdir()):
        sys.stdout.write(f"fuzz: {name}: not merged, see {folder / 'merge.log'}\n")
        return
    for path in corpus_of(name):
        path.unlink()
    for path in sorted(merged.iterdir()):
        shutil.copyfile(path, CORPUS / name / path.name[:16])
    size = sum(path.stat().st_size for path in corpus_of(name))
    sys.stdout.write(f"fuzz: {name}: {len(corpus_of(name))} inputs, {size} bytes in the corpus\n")


if __name__ == "__main__":
    sys.exit(main())
