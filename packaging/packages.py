# SPDX-License-Identifier: Apache-2.0
"""Builds all debs and rpms: `python packaging/packages.py --tree TREE --out DIRECTORY [--version VERSION]`.

packages.toml says what each package has, TREE is what packaging/tree.py builds. nfpm writes both formats
from one description. The times of all files are that of the commit (or SOURCE_DATE_EPOCH), so that one
commit makes the same bytes. Beside the packages stand SHA256SUMS and, for each package with libraries, a
CycloneDX SBOM.

Exit code 1: a part of the tree belongs to no package or to two, or nfpm failed.
"""

import argparse
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import bundled
import msgspec

from daemonkit.version import VERSION

SOURCE = Path(__file__).resolve().parents[1]
PREFIX = "/usr/lib/vcnode"
COMMON = "vcnode-common"
GUEST = "vcnode-guest"
# nfpm's name of the machine, and what each format calls it.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_MAINTAINER = "vcnode maintainers <maintainers@vcnode.io>"
_LAUNCHER = "/usr/bin"
FORMS = ("deb", "rpm")
# Of a description: Debian Policy 5.6.13 and rpmlint want terminals of 80 columns.
_LINE = 76
_CHANGES = "CHANGELOG.md in the source has the changes."
_CONFIGURATION = """\
# SPDX-License-Identifier: Apache-2.0
# `vcnode init` writes this file. An example with all keys is /usr/share/vcnode/examples/{daemon}.yaml.
apiVersion: vcnode.io/v1alpha1
{kind}
"""


class PackagingError(Exception):
    """The packages cannot be built; the text names the part."""


@dataclass(frozen=True, slots=True)
class Package:
    """One entry of packages.toml."""

    name: str
    summary: str
    description: str
    modules: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    daemons: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()
    recommends: tuple[str, ...] = ()
    deb: tuple[str, ...] = ()
    rpm: tuple[str, ...] = ()
    deb_recommends: tuple[str, ...] = ()
    rpm_recommends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Release:
    """What all packages of one build share. `made_at` is in seconds since 1970."""

    version: str
    made_at: int
    compression: str


def read(path: Path = SOURCE / "packaging/packages.toml") -> list[Package]:
    """All packages of the file, in its order. Raises `msgspec.ValidationError`."""
    entries = tomllib.loads(path.read_text())
    renamed = {
        name: {key.replace("-", "_"): value for key, value in entry.items()}
        for name, entry in entries.items()
    }
    return [msgspec.convert({"name": name, **entry}, Package) for name, entry in renamed.items()]


def divide(tree: Path, packages: list[Package]) -> dict[str, list[str]]:
    """The entries at the top of the tree, by package; a library's are those of its RECORD.

    Raises `PackagingError` for an entry without a package, or with two, and for a name that matches nothing.
    """
    libraries = bundled.distributions(tree)
    owners: dict[str, list[str]] = {}
    for package in packages:
        for name in package.libraries:
            if name not in libraries:
                raise PackagingError(f"{package.name}: the tree has no library {name}")
            for entry in libraries[name].entries:
                owners.setdefault(entry, []).append(package.name)
        for pattern in package.modules:
            found = [each.name for each in tree.iterdir() if fnmatch(each.name.partition(".")[0], pattern)]
            if not found:
                raise PackagingError(f"{package.name}: the tree has no module {pattern}")
            for entry in found:
                owners.setdefault(entry, []).append(package.name)
    # Launchers are divided by `programs`; byte code of single modules goes with the module.
    own = {"bin", "__pycache__", next(tree.glob("vcnode-*.dist-info")).name}
    for entry in sorted(each.name for each in tree.iterdir() if each.name not in own):
        if len(owners.get(entry, ())) != 1:
            raise PackagingError(f"{entry}: in {owners.get(entry) or 'no package'}, expected one package")
    divided: dict[str, list[str]] = {package.name: [] for package in packages}
    for entry, (owner,) in sorted(owners.items()):
        divided[owner].append(entry)
    return divided


def main(argv: list[str] | None = None) -> int:
    """Build all. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="packages.py", allow_abbrev=False)
    parser.add_argument("--tree", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--version", default=VERSION, help="instead of the one in daemonkit/version.py")
    parser.add_argument(
        "--compression",
        choices=("xz", "gzip"),
        default="xz",
        help="of debs: gzip where they are not published",
    )
    arguments = parser.parse_args(argv)
    packages = read()
    try:
        with tempfile.TemporaryDirectory(prefix="vcnode-packages-") as scratch:
            release = Release(arguments.version, commit_time(), arguments.compression)
            build(arguments.tree, packages, release, Path(scratch), arguments.out)
    except (PackagingError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"packages: {error}\n")
        return 1
    return 0


def build(tree: Path, packages: list[Package], release: Release, scratch: Path, out: Path) -> None:
    """Write every package into `out`, beside their checksums and SBOMs."""
    divided = divide(tree, packages)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    pages = scratch / "documents"
    _write_pages(pages, release.made_at)

    def write(package: Package) -> None:
        stage = scratch / package.name
        _stage(package, tree, divided[package.name], pages, stage)
        if package.libraries:
            sbom = bundled.sbom(tree, package.libraries, release.made_at)
            (out / f"{package.name}_{release.version}.cdx.json").write_text(sbom)
        for form in FORMS:
            _package(package, tree, stage, form, release, out)

    # nfpm compresses on one core.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(write, packages))
    sums = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(out.iterdir())
    ]
    (out / "SHA256SUMS").write_text("".join(sums))


def _stage(package: Package, tree: Path, entries: list[str], pages: Path, stage: Path) -> None:
    """The files of one package below `stage`, at their places in the root of a node."""
    target = stage / PREFIX[1:]
    target.mkdir(parents=True)
    stage_tree(package, tree, entries, target)
    for program in package.programs:
        (stage / _LAUNCHER[1:]).mkdir(parents=True, exist_ok=True)
        (stage / _LAUNCHER[1:] / program).symlink_to(f"..{PREFIX.removeprefix('/usr')}/bin/{program}")
    if package.name == GUEST:
        subprocess.run([str(SOURCE / "packaging/guest/overlay.sh"), str(stage)], check=True)  # noqa: S603
    if not any(target.iterdir()):
        shutil.rmtree(stage / "usr/lib/vcnode")
    for daemon in package.daemons:
        _copy(SOURCE / "systemd" / f"{daemon}.service", stage / f"usr/lib/systemd/system/{daemon}.service")
        _write_configuration(daemon, stage)
    if package.name == COMMON:
        _copy(SOURCE / "systemd/vcnode.slice", stage / "usr/lib/systemd/system/vcnode.slice")
        _copy(SOURCE / "systemd/hand-over", target / "hand-over")
        for folder in (
            "namespace",
            "crds",
            "rbac",
            "gate",
            "syncer",
            "operator",
            "webhook",
            "webhook-cert-manager",
            "cluster",
            "observability",
        ):
            shutil.copytree(SOURCE / "packaging" / folder, stage / "usr/share/vcnode" / folder)
        shutil.copytree(SOURCE / "examples", stage / "usr/share/vcnode/examples")
        _copy(SOURCE / "NOTICE", stage / f"usr/share/doc/{COMMON}/NOTICE")
    for kind, folder in (("sysusers", "sysusers.d"), ("tmpfiles", "tmpfiles.d")):
        fragment = SOURCE / "systemd" / f"{package.name}.{kind}"
        if fragment.exists():
            _copy(fragment, stage / f"usr/lib/{folder}/{package.name}.conf")
    # The guest's program is in its overlay, not in the tree.
    documented = (*package.programs, *(["vcnode-guest-agent"] if package.name == GUEST else []))
    for page in pages.rglob("*"):
        if page.is_file() and page.name.partition(".")[0].lstrip("_") in documented:
            _copy(page, stage / page.relative_to(pages))
    set_modes(stage)


def stage_tree(package: Package, tree: Path, entries: list[str], target: Path) -> None:
    """The package's part of the tree, with its launchers, below `target`."""
    if package.name == COMMON:
        # `--version` reads it.
        notes = next(tree.glob("vcnode-*.dist-info"))
        shutil.copytree(notes, target / notes.name)
    for entry in entries:
        source = tree / entry
        if source.is_dir():
            shutil.copytree(source, target / entry)
            continue
        shutil.copy2(source, target / entry)
        for code in (tree / "__pycache__").glob(f"{source.stem}.*.pyc"):
            (target / "__pycache__").mkdir(exist_ok=True)
            shutil.copy2(code, target / "__pycache__" / code.name)
    for program in package.programs:
        _copy(tree / "bin" / program, target / "bin" / program)


def set_modes(stage: Path) -> None:
    """Modes of all files, whatever the umask of the machine."""
    for path in stage.rglob("*"):
        if not path.is_symlink():
            is_program = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if is_program and path.suffix != ".so" else 0o644)


def _write_pages(target: Path, made_at: int) -> None:
    """Man pages and completions of all programs below `target`, at their places in the root of a node."""
    script = SOURCE / "packaging/documents.py"
    # The day of a page is that of its time zone.
    fixed = {"SOURCE_DATE_EPOCH": str(made_at), "TZ": "UTC"}
    environment = {**os.environ, **fixed}  # noqa: TID251 - as for nfpm
    subprocess.run([sys.executable, str(script), str(target)], check=True, env=environment)  # noqa: S603


def _write_configuration(daemon: str, stage: Path) -> None:
    """The daemon's configuration file, without a key: it never changes, so no upgrade asks about it."""
    example = (SOURCE / "examples" / f"{daemon}.yaml").read_text()
    kind = next(line for line in example.splitlines() if line.startswith("kind: "))
    text = _CONFIGURATION.format(daemon=daemon, kind=kind)
    for place in ("etc/vcnode", "usr/share/vcnode/configuration"):
        path = stage / place / f"{daemon}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _documents(
    package: Package, tree: Path, form: str, release: Release, scratch: Path
) -> Iterator[dict[str, object]]:
    """Licences, and for debs the changelog and lintian's exceptions, with their places."""
    folder = scratch / f"{package.name}.{form}"
    folder.mkdir()
    if form == "rpm":
        (folder / "LICENSE").write_text(bundled.licence_texts(tree, package.libraries))
        set_modes(folder)
        place = f"/usr/share/licenses/{package.name}"
        # rpm removes no folder that no package has.
        yield {"dst": place, "type": "dir", "file_info": {"mode": 0o755}}
        yield {"src": str(folder / "LICENSE"), "dst": f"{place}/LICENSE", "type": "license"}
        return
    (folder / "copyright").write_text(bundled.copyright_text(tree, package.libraries))
    entry = f"vcnode ({release.version}) unstable; urgency=medium\n\n  * {_CHANGES}\n\n"
    trailer = f" -- {_MAINTAINER}  {_rfc_2822(release.made_at)}\n"
    (folder / "changelog.gz").write_bytes(gzip.compress((entry + trailer).encode(), 9, mtime=0))
    exceptions = exceptions_of(package)
    if exceptions:
        (folder / "overrides").write_text(exceptions)
    set_modes(folder)
    for name in ("copyright", "changelog.gz"):
        yield {"src": str(folder / name), "dst": f"/usr/share/doc/{package.name}/{name}"}
    if exceptions:
        yield {"src": str(folder / "overrides"), "dst": f"/usr/share/lintian/overrides/{package.name}"}


def exceptions_of(package: Package) -> str:
    """What `packaging/lintian.toml` excepts for this package, as lintian reads it."""
    entries = tomllib.loads((SOURCE / "packaging/lintian.toml").read_text())["exception"]
    return "".join(
        f"# {each['reason']}\n{package.name}: {each['tag']} {each.get('context', '*')}\n"
        for each in entries
        if package.name in each.get("packages", ()) or ("having" in each and getattr(package, each["having"]))
    )


def _package(package: Package, tree: Path, stage: Path, form: str, release: Release, out: Path) -> None:
    is_deb = form == "deb"
    own = package.deb if is_deb else package.rpm
    sign = f"(= {release.version})" if is_deb else f"= {release.version}"
    # Wheels are for glibc 2.28 (manylinux_2_28), and ours for the interpreter of the distribution.
    is_binary = any(stage.rglob("*.so"))
    libc = [] if not is_binary else ["libc6 (>= 2.28)" if is_deb else "glibc >= 2.28"]
    architecture = ARCHITECTURES[os.uname().machine]
    history = stage.parent / f"{package.name}.changelog.yaml"
    history.write_text(json.dumps([_history(release)]))
    description = {
        "name": package.name,
        "arch": architecture if is_binary else "all",
        "version": release.version,
        "version_schema": "none",
        "section": "net",
        "priority": "optional",
        "maintainer": _MAINTAINER,
        "vendor": "vcnode",
        "homepage": "https://vcnode.io",
        "license": bundled.license_expression(tree, package.libraries),
        "description": f"{package.summary}\n{textwrap.fill(package.description.strip(), _LINE)}",
        "depends": [*own, *libc, *(f"{name} {sign}" for name in package.depends)],
        "recommends": [
            *(package.deb_recommends if is_deb else package.rpm_recommends),
            *(f"{name} {sign}" for name in package.recommends),
        ],
        "mtime": _iso(release.made_at),
        "contents": [*_contents(stage, form), *_documents(package, tree, form, release, stage.parent)],
        "scripts": _scripts(package, form, stage.parent),
        "deb": {"compression": release.compression},
        "rpm": {
            "compression": "zstd",
            "buildhost": "vcnode",
            "group": "System Environment/Daemons",
            "summary": package.summary[0].upper() + package.summary[1:],
        },
        **({} if is_deb else {"changelog": str(history)}),
    }
    config = stage.parent / f"{package.name}.{form}.json"
    config.write_text(json.dumps(description))
    words = [
        str(Path(sys.executable).with_name("nfpm")),
        "package",
        "--config",
        str(config),
        "--packager",
        form,
        "--target",
        f"{out}/",
    ]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(release.made_at)}  # noqa: TID251 - nfpm reads it
    done = subprocess.run(words, check=False, capture_output=True, text=True, env=environment)  # noqa: S603
    if done.returncode:
        raise PackagingError(f"{package.name}: nfpm: {done.stdout}{done.stderr}")


def _history(release: Release) -> dict[str, object]:
    """One entry of a changelog as nfpm reads it: https://github.com/goreleaser/chglog"""
    return {
        # nfpm gives an rpm release 1.
        "semver": f"{release.version}-1",
        "date": _iso(release.made_at),
        "packager": _MAINTAINER,
        "changes": [{"note": _CHANGES}],
    }


def _contents(stage: Path, form: str) -> Iterator[dict[str, object]]:
    """Each file, with its kind: nfpm takes modes from the stage, and owners are root."""
    for path in sorted(stage.rglob("*")):
        place = f"/{path.relative_to(stage)}"
        if path.is_symlink():
            yield {"src": str(path.readlink()), "dst": place, "type": "symlink"}
        elif path.is_dir():
            # Only ours: /usr and /etc belong to the distribution.
            if "vcnode" in place:
                yield {"dst": place, "type": "dir", "file_info": {"mode": 0o755}}
        elif place.startswith("/etc/"):
            yield {"src": str(path), "dst": place, "type": "config|noreplace"}
        elif form == "rpm" and place.startswith(("/usr/share/man/", "/usr/share/doc/")):
            yield {"src": str(path), "dst": place, "type": "doc"}
        else:
            yield {"src": str(path), "dst": place}


def _scripts(package: Package, form: str, scratch: Path) -> dict[str, str]:
    """The scripts of one package: the templates of packaging/scripts with its names."""
    if not (package.daemons or package.name == COMMON):
        return {}
    values = {
        "PACKAGE": package.name,
        "UNITS": " ".join(f"{daemon}.service" for daemon in package.daemons),
        "DAEMONS": " ".join(package.daemons),
    }
    made = {}
    for name in ("postinstall", "preremove", "postremove"):
        own = f"{name}-{form}" if name == "postremove" else name
        text = (SOURCE / "packaging/scripts" / f"{own}.sh").read_text()
        for key, value in values.items():
            text = text.replace(f"@{key}@", value)
        path = scratch / f"{package.name}.{form}.{name}"
        path.write_text(text)
        made[name] = str(path)
    return made


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def commit_time() -> int:
    """Seconds since the epoch: SOURCE_DATE_EPOCH, or the time of the last commit.

    https://reproducible-builds.org/specs/source-date-epoch/
    """
    given = os.environ.get("SOURCE_DATE_EPOCH", "")  # noqa: TID251 - the specification has it there
    if given:
        return int(given)
    words = ["git", "-C", str(SOURCE), "log", "-1", "--format=%ct"]
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)  # noqa: S603


def _iso(seconds: int) -> str:
    import datetime as dt

    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _rfc_2822(seconds: int) -> str:
    from email.utils import formatdate

    return formatdate(seconds)


if __name__ == "__main__":
    sys.exit(main())
