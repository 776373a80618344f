# SPDX-License-Identifier: Apache-2.0
"""nginx as a second peer: a proxy alone. It verifies certificates, and decides nothing.

It translates the first tenant's namespace by one fixed expression. It knows no tenants, pods, containers or
parameters, and passes the client's headers on. So it is no replacement, but shows what proxying costs in C.
"""

import socket
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bench.fixture import NAMESPACE, NODE, Fixture, super_namespace, tenant_key
from tests.bench.processes import START_TIMEOUT_S, Process
from tests.bench.subjects import BenchMachine, RunningProxy, free_port

NGINX = "nginx"
PROGRAM = Path("/usr/sbin/nginx")

_CONFIGURATION = """\
daemon off;
master_process off;
pid {directory}/nginx.pid;
error_log {directory}/nginx-error.log warn;
events {{ worker_connections 8192; }}
http {{
  access_log {directory}/nginx-access.log;
  client_body_temp_path {directory}/nginx-body;
  proxy_temp_path {directory}/nginx-proxy;
  fastcgi_temp_path {directory}/nginx-unused;
  uwsgi_temp_path {directory}/nginx-unused;
  scgi_temp_path {directory}/nginx-unused;
  keepalive_requests 1000000000;
  tcp_nodelay on;
  map $http_upgrade $hop {{ default Upgrade; "" ""; }}
  upstream kubelet {{ server {upstream}; keepalive 256; keepalive_requests 1000000000; }}
  server {{
    listen {address} ssl backlog=1024;
    ssl_certificate {certificate};
    ssl_certificate_key {key};
    ssl_client_certificate {client_ca};
    ssl_verify_client on;
    ssl_protocols TLSv1.3;
    ssl_session_tickets off;
    ssl_ecdh_curve X25519:prime256v1;
    ssl_buffer_size 16k;
    location ~ ^/(containerLogs|exec)/{namespace}/(.*)$ {{
      proxy_pass https://kubelet/$1/{super_namespace}/$2$is_args$args;
      proxy_http_version 1.1;
      proxy_set_header Host {upstream};
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $hop;
      proxy_buffering off;
      proxy_request_buffering off;
      proxy_read_timeout 4h;
      proxy_ssl_protocols TLSv1.3;
      proxy_ssl_certificate {kubelet_certificate};
      proxy_ssl_certificate_key {kubelet_key};
      proxy_ssl_trusted_certificate {kubelet_ca};
      proxy_ssl_verify on;
      proxy_ssl_name {node};
      proxy_ssl_server_name on;
      proxy_ssl_session_reuse on;
    }}
  }}
}}
"""


@dataclass(slots=True)
class NginxPeer:
    """One process of nginx, with one audit-like line for each request in its access log."""

    machine: BenchMachine
    files: Fixture
    upstream: str
    name: str = NGINX

    def start(self) -> RunningProxy:
        begin = time.monotonic()
        files, directory = self.files, self.machine.directory
        address = f"127.0.0.1:{free_port()}"
        config = directory / "nginx.conf"
        config.write_text(
            _CONFIGURATION.format(
                directory=directory,
                address=address,
                upstream=self.upstream,
                certificate=files.serving.certificate,
                key=files.serving.key,
                client_ca=files.all_tenant_cas,
                namespace=NAMESPACE,
                super_namespace=super_namespace(tenant_key(0)),
                kubelet_certificate=files.kubelet_client.certificate,
                kubelet_key=files.kubelet_client.key,
                kubelet_ca=files.super_ca,
                node=NODE,
            )
        )
        process = Process(
            self.name,
            [PROGRAM, "-p", directory, "-c", config],
            self.machine.proxy_core,
            directory / "nginx.log",
        )
        _wait_listening(process, address)
        return RunningProxy(process, address, time.monotonic() - begin)


def _wait_listening(process: Process, address: str) -> None:
    host, _, port = address.rpartition(":")
    end = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end:
        if not process.is_running():
            raise process.error("ended at its start")
        with socket.socket() as client:
            if client.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.005)  # pace: nginx reports no start, so its figure has up to 5 ms of this
    raise process.error(f"did not listen within {START_TIMEOUT_S:g} s")
