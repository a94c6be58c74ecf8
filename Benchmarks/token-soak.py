#!/usr/bin/env python3
"""Soaks the PKCS#11 socket of `certprov serve`: many connections, each with a search and a signature. Prints what the service has before,
after each tenth, and at the end: memory, descriptors and threads.

    Benchmarks/token-soak.py BIN [--connections NUMBER]

BIN holds the release build of certprov. The key is in a file. Some minutes.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import token_socket  # noqa: E402
import tunnels  # noqa: E402

PROCESSES = 4
KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin", type=os.path.abspath)
    parser.add_argument("--connections", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        subprocess.run(["openssl", "req", "-x509", *KEY, "-keyout", "key.pem", "-out", "chain.pem", "-days", "2", "-subj", "/CN=soak"],
                       check=True, capture_output=True, cwd=work)
        token_socket.build_loop(work)
        with token_socket.service(options.bin, work, dict(os.environ), f"{work}/key.pem") as (process, env):
            command = [f"{work}/sign-loop", token_socket.client(), "certprov", "", "connections"]
            print(f"before: {tunnels.state(process)}", flush=True)
            for tenth in range(1, 11):
                begin = time.monotonic()
                running = [subprocess.Popen([*command, str(options.connections // 10 // PROCESSES)], env=env) for _ in range(PROCESSES)]
                if any([one.wait() for one in running]):
                    raise SystemExit("sign-loop failed")
                rate = options.connections / 10 / (time.monotonic() - begin)
                print(f"{tenth * 10} %: {tunnels.state(process)}; {rate:.0f} connections a second", flush=True)
        with open(f"{work}/socket/log") as log:
            lines = log.read().splitlines()
        print(f"{len(lines)} lines in its log, the last of them:", *lines[-3:], sep="\n  ")


if __name__ == "__main__":
    main()
