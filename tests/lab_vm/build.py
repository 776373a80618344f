#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Build the guests' kernel that has nft, once, into a cache: User-mode Linux of Debian's kernel source.

    python3 tests/lab_vm/build.py [--cache DIR] [--jobs N]

Debian's own user-mode-linux is built without the nf_tables families ip and ip6, so nft cannot be
used in it. This kernel has what `kernel/config` lists, all built in. A second run finds it and ends
at once. Needs the packages of `packages.txt`, a C compiler, and apt sources with linux-source. Exit 1 if it
cannot be built. The ring's fixtures read from here where it is kept.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONFIG = Path(__file__).resolve().parent / "kernel" / "config"
DEFAULT_CACHE = Path.home() / ".cache" / "vcnode" / "uml"
PROGRAMS = {"flex": "flex", "bison": "bison", "bc": "bc", "make": "make", "gcc": "gcc", "xz": "xz-utils"}

_PACKAGE = "linux-source"
_KERNEL = "linux"
# The source is 1.3 GB unpacked, the objects 0.2 GB.
_FREE_BYTES_NEEDED = 3 << 30
# The download and the build take some three minutes on two processors; more than this is a hang.
_STEP_TIMEOUT_S = 1500
# The processor's state that a kernel keeps of a process: of hosts with AMX it is 11 008 bytes, and a process
# whose state is cut short ends at its first instruction. Newer kernels ask the host (6.13).
_REGISTERS = (
    Path("arch/x86/um/user-offsets.c"),
    "DEFINE_LONGS(HOST_FP_SIZE, 2696);",
    "DEFINE_LONGS(HOST_FP_SIZE, 12288);",
)
# Two thirds of the source, which this configuration never compiles. Their Kconfig files are read.
_UNUSED = (
    "*/drivers/gpu/*.[chS]",
    "*/drivers/media/*.[ch]",
    "*/drivers/net/ethernet/*.[ch]",
    "*/drivers/net/wireless/*.[ch]",
    "*/drivers/scsi/*.[ch]",
    "*/drivers/staging/*.[ch]",
    "*/sound/*.[ch]",
    "*/tools/testing/*",
)


class BuildError(Exception):
    """The kernel cannot be built; the text has the reason and the remedy."""


def find_kernel(cache: Path) -> Path | None:
    """The newest kernel that was built with the present configuration, or None."""
    found = [each / _KERNEL for each in cache.glob(f"*-{_digest()}") if (each / _KERNEL).is_file()]
    return max(found, key=lambda each: each.stat().st_mtime, default=None)


def main() -> int:
    """Build the kernel if apt's version of it is not there; the exit code says whether there is one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    cache: Path = options.cache
    cache.mkdir(parents=True, exist_ok=True)
    try:
        with (cache / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _build_missing(cache, options.jobs)
    except BuildError as error:
        sys.stderr.write(f"guest kernel: {error}\n")
        return 1
    return 0


def _digest() -> str:
    """The part of a directory's name that stands for the configuration and what is changed in the source."""
    return hashlib.sha256(CONFIG.read_bytes() + _REGISTERS[2].encode()).hexdigest()[:16]


def _build_missing(cache: Path, jobs: int) -> None:
    """Raises `BuildError`."""
    built = find_kernel(cache)
    try:
        package, version = _source()
    except BuildError as error:
        if built is None:
            raise
        _report(f"using {built}: {error}")
        return
    # A version has characters that make would split or the shell would expand.
    target = cache / f"{re.sub(r'[^A-Za-z0-9.+-]', '_', version)}-{_digest()}"
    if (target / _KERNEL).is_file():
        _report(f"already built, {target}")
        return
    lacks = sorted({package for name, package in PROGRAMS.items() if not shutil.which(name)})
    if lacks:
        raise BuildError(f"apt-get install {' '.join(lacks)}")
    free = shutil.disk_usage(cache).free
    if free < _FREE_BYTES_NEEDED:
        raise BuildError(f"{cache}: {free >> 20} MiB free, {_FREE_BYTES_NEEDED >> 20} MiB needed to build")
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=".build-", dir=cache) as made:
        scratch = Path(made)
        source = _unpack(scratch, package, version)
        kernel = _compile(scratch, source, jobs)
        (scratch / "out").mkdir()
        kernel.rename(scratch / "out" / _KERNEL)
        (scratch / "out").rename(target)
    size = (target / _KERNEL).stat().st_size
    _report(f"{package} {version}, {size >> 20} MiB, {time.monotonic() - began_s:.0f} s, {target}")


def _source() -> tuple[str, str]:
    """The package with the kernel's source and its version, as apt has it. Raises `BuildError`."""
    depends = _run("apt-cache", "depends", "--important", _PACKAGE)
    found = re.search(rf"Depends: ({_PACKAGE}-[0-9.]+)", depends)
    if found is None:
        raise BuildError(
            f"apt has no package {_PACKAGE}: apt-get update, or add Debian's main to its sources"
        )
    policy = _run("apt-cache", "policy", found[1])
    candidate = re.search(r"Candidate: (\S+)", policy)
    if candidate is None or candidate[1] == "(none)":
        raise BuildError(f"apt has no version of {found[1]}: apt-get update")
    return found[1], candidate[1]


def _unpack(scratch: Path, package: str, version: str) -> Path:
    """Download and unpack the source; returns its directory. Raises `BuildError`."""
    _run("apt-get", "download", "-q", f"{package}={version}", cwd=scratch)
    (archive,) = scratch.glob("*.deb")
    _run("dpkg-deb", "-x", str(archive), str(scratch / "package"))
    archive.unlink()
    (tarball,) = (scratch / "package" / "usr" / "src").glob("*.tar.xz")
    (scratch / "source").mkdir()
    unused = [f"--exclude={pattern}" for pattern in _UNUSED]
    _run("tar", "-xf", str(tarball), "--strip-components=1", *unused, cwd=scratch / "source")
    shutil.rmtree(scratch / "package")
    _widen_registers(scratch / "source")
    return scratch / "source"


def _widen_registers(source: Path) -> None:
    """Raises `BuildError` where the source has another size."""
    path, narrow, wide = _REGISTERS
    text = (source / path).read_text()
    if narrow not in text:
        raise BuildError(f"{path} has not the line {narrow!r}: look whether this kernel asks the host")
    (source / path).write_text(text.replace(narrow, wide))


def _compile(scratch: Path, source: Path, jobs: int) -> Path:
    """Configure and compile; returns the kernel, stripped. Raises `BuildError`."""
    objects = scratch / "objects"
    objects.mkdir()
    make = ["make", "-C", str(source), "ARCH=um", f"O={objects}"]
    _run(*make, f"KCONFIG_ALLCONFIG={CONFIG}", "allnoconfig")
    # An option whose dependencies are missing is left out silently.
    options = {line for line in CONFIG.read_text().splitlines() if line.startswith("CONFIG_")}
    lost = sorted(options - set((objects / ".config").read_text().splitlines()))
    if lost:
        raise BuildError(f"this kernel's source does not accept {', '.join(lost)}")
    _run("nice", *make, f"-j{jobs}", "linux")
    _run("strip", str(objects / _KERNEL))
    return objects / _KERNEL


def _run(*argv: str, cwd: Path | None = None) -> str:
    """The output of a program. Raises `BuildError`."""
    try:
        done = subprocess.run(
            ["env", "LC_ALL=C", *argv],
            cwd=cwd,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_STEP_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{argv[0]}: {error}") from None
    if done.returncode:
        raise BuildError(f"{' '.join(argv[:4])}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


def _report(line: str) -> None:
    sys.stdout.write(f"guest kernel: {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
