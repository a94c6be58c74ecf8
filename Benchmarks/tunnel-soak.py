#!/usr/bin/env python3
"""Soaks a server tunnel of `certprov serve`: many short connections, and many replacements of its certificate and key. Prints what
the service has before, after each tenth, and at the end: memory, descriptors and threads.

    Benchmarks/tunnel-soak.py BIN [--connections NUMBER] [--replacements NUMBER]

BIN holds the release build of certprov. A replacement counts when a new connection gets the new certificate. The service looks at files
every two seconds, and takes what has settled, so that it has several identities, which are replaced at one time. Some minutes.
"""
import argparse
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import tunnels  # noqa: E402

IDENTITIES = 20
KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"]


def openssl(*words, cwd):
    subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=cwd)


def make_files(work):
    """A CA, and two pairs of it: 0 and 1. The first is the clients' as well."""
    openssl("req", "-x509", *KEY, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=CA", cwd=work)
    for number in (0, 1):
        openssl("req", "-x509", *KEY, "-CA", "ca.pem", "-CAkey", "ca.key", "-keyout", f"key-{number}", "-out", f"chain-{number}",
                "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-addext",
                "basicConstraints=critical,CA:FALSE", cwd=work)
    for name in ("key", "chain"):
        os.link(f"{work}/{name}-0", f"{work}/{name}.pem")


class Service:
    """The identities of one service, each with its files and its tunnel."""

    def __init__(self, bin, work, target):
        self.work, self.ports = work, [tunnels.free_port() for _ in range(IDENTITIES)]
        for name in ("etc", "run", "state"):
            os.mkdir(f"{work}/{name}", 0o700)
        for port in self.ports:
            os.mkdir(f"{work}/{port}")
            tunnels.write(f"{work}/etc/{port}.properties", f"""CertificateProvider = pem
CertificateProvider.pem.certificate = {work}/{port}/chain
CertificateProvider.pem.key = {work}/{port}/key
CertificateProvider.pem.usage = server
TrustAnchors = {work}/ca.pem
Peers.allow = any
Serve.tunnel.1.mode = server
Serve.tunnel.1.listen = 127.0.0.1:{port}
Serve.tunnel.1.target = 127.0.0.1:{target}
""")
        self.put(0)
        env = dict(os.environ, RUNTIME_DIRECTORY=f"{work}/run", STATE_DIRECTORY=f"{work}/state", XDG_STATE_HOME=f"{work}/state")
        self.tunnel = tunnels.Running([f"{bin}/certprov", "serve", "--directory", f"{work}/etc"], env, f"{work}/log")
        for port in self.ports:
            self.tunnel.wait(port)
        self.context = ssl.create_default_context(cafile=f"{work}/ca.pem")
        self.context.load_cert_chain(f"{work}/chain.pem", f"{work}/key.pem")

    def put(self, number):
        """For each identity the key first, then the certificate, each by a rename."""
        for port in self.ports:
            for name in ("key", "chain"):
                shutil.copy(f"{self.work}/{name}-{number}", f"{self.work}/new")
                os.rename(f"{self.work}/new", f"{self.work}/{port}/{name}")

    def certificate(self, port):
        with socket.create_connection(("127.0.0.1", port)) as plain, self.context.wrap_socket(
                plain, server_hostname="localhost") as tls:
            tls.sendall(b"e")
            tls.recv(1)
            return ssl.DER_cert_to_PEM_cert(tls.getpeercert(binary_form=True))

    def replace(self, number):
        self.put(number)
        with open(f"{self.work}/chain-{number}") as file:
            new = file.read()
        end = time.monotonic() + 60
        for port in self.ports:
            while self.certificate(port) != new:
                if time.monotonic() > end:
                    raise SystemExit("the new certificate is not served")
                time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin", type=os.path.abspath)
    parser.add_argument("--connections", type=int, default=100_000)
    parser.add_argument("--replacements", type=int, default=1_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        make_files(work)
        load = tunnels.Load(work)
        with load.target() as target:
            service = Service(options.bin, work, target)
            rounds = options.replacements // IDENTITIES // 10
            try:
                service.certificate(service.ports[0])
                print(f"before: {tunnels.state(service.tunnel.process)}", flush=True)
                for tenth in range(1, 11):
                    load.run("count", service.ports[0], tunnels.CLIENTS, options.connections // 10)
                    begin = time.monotonic()
                    for number in range(rounds):
                        service.replace(((tenth - 1) * rounds + number + 1) % 2)
                    print(f"{tenth * 10} %: {tunnels.state(service.tunnel.process)}; {(time.monotonic() - begin) / max(1, rounds):.1f} s until a replacement of all"
                          " pairs is served", flush=True)
            finally:
                service.tunnel.end()
                with open(f"{work}/log") as log:
                    lines = log.read().splitlines()
                print(f"{len(lines)} lines in its log, the last of them:", *lines[-3:], sep="\n  ")


if __name__ == "__main__":
    main()
