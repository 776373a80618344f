# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL that tenants share, as a machine beside the super cluster's control plane."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from devkit.pki import Authority
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.processes import RingError, RingProcess, run

USER = "administrator"
_ACCOUNT = "postgres"
_READY_S = 30.0
# Debian keeps them out of the search path, by version.
_PROGRAMS = Path("/usr/lib/postgresql")


@dataclass(frozen=True, slots=True)
class PostgresqlServer:
    """Takes connections with TLS and a password alone, as its administrator set it up."""

    network: NetworkNamespace
    directory: Path
    authority: Authority
    password: str = field(repr=False)
    process: RingProcess

    @property
    def endpoint(self) -> str:
        """The administrator's URL."""
        return f"postgres://{USER}:{self.password}@{self.network.address}:5432/postgres"

    def ask(self, statement: str) -> list[str]:
        """What a query answers, a row a line, as the administrator."""
        return self.ask_as(USER, self.password, "postgres", statement)

    def ask_as(self, user: str, password: str, database: str, statement: str) -> list[str]:
        """What a query of a user answers, a row a line. Raises RingError."""
        return _psql(self, user, password, database, statement).split()

    def is_ready(self) -> bool:
        try:
            return self.ask("SELECT 1") == ["1"]
        except RingError:
            return False

    def pause(self) -> None:
        """It answers nothing, as a machine that is away: its connections stay open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        """To the one that starts others first."""
        server = self.process.pid
        for pid in (server, *_children(server)):
            os.kill(pid, number)


@contextmanager
def started(network: NetworkNamespace, log: Path) -> Iterator[PostgresqlServer]:
    """A server at the namespace's address, with an authority of its own."""
    programs = max(_PROGRAMS.glob("*/bin"), key=lambda path: int(path.parent.name))
    account = pwd.getpwnam(_ACCOUNT)
    become = ["setpriv", f"--reuid={_ACCOUNT}", f"--regid={_ACCOUNT}", "--clear-groups"]
    password = secrets.token_hex(16)
    authority = Authority.create("authority of databases")
    directory = Path(tempfile.mkdtemp(prefix="postgresql-"))
    try:
        leaf = authority.issue("postgresql", sans_ip=[network.address], usages=("server",))
        certificate, key = leaf.write(directory, "server")
        (directory / "ca.crt").write_bytes(authority.cert_pem)
        (directory / "password").write_text(password)
        for path in (directory, *directory.iterdir()):
            os.chown(path, account.pw_uid, account.pw_gid)
        key.chmod(0o600)
        data = directory / "data"
        run(
            [
                *become,
                *(str(programs / "initdb"), f"--pgdata={data}", "--auth=scram-sha-256", "--no-sync"),
                *(f"--username={USER}", f"--pwfile={directory / 'password'}", "--encoding=UTF8"),
            ]
        )
        with (data / "pg_hba.conf").open("a") as rules:
            rules.write("hostssl all all 0.0.0.0/0 scram-sha-256\n")
        settings = {
            "listen_addresses": network.address,
            "ssl": "on",
            "ssl_cert_file": certificate,
            "ssl_key_file": key,
            "log_statement": "all",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        argv = [*network.enter, *become, str(programs / "postgres"), "-D", str(data), "-k", "", *options]
        process = RingProcess("postgresql", argv, log, directory=directory)
        made = PostgresqlServer(network, directory, authority, password, process)
        try:
            process.wait_until(made.is_ready, timeout_s=_READY_S)
            yield made
        finally:
            made.resume()
            process.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _psql(server: PostgresqlServer, user: str, password: str, database: str, statement: str) -> str:
    environment = {
        "PGPASSWORD": password,
        "PGSSLMODE": "verify-full",
        "PGSSLROOTCERT": server.directory / "ca.crt",
        "PGCONNECT_TIMEOUT": 5,
    }
    return run(
        [
            *server.network.enter,
            *("env", *(f"{name}={value}" for name, value in environment.items())),
            *("psql", f"--host={server.network.address}", f"--username={user}", f"--dbname={database}"),
            *("--quiet", "--tuples-only", "--no-align", f"--command={statement}"),
        ]
    ).decode()


def _children(parent: int) -> list[int]:
    """The processes of its connections, and those that it keeps."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            # Behind the name, which is in brackets.
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(path.name))
    return found
