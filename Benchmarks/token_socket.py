"""Keys through the PKCS#11 socket of `certprov serve`: signatures beside `p11-kit server`, both with the same key in SoftHSM, and handshakes
of nginx beside nginx with a PEM file.

A caller is a process with a connection of its own. nginx has one worker and one processor with what signs for it; its clients
(`openssl s_time`) have the others.
"""
import contextlib
import glob
import os
import pwd
import statistics
import subprocess
import time

import ratios
import tunnels

ROUNDS, SECONDS, CLIENTS = 5, 1, 8
HERE = os.path.dirname(os.path.abspath(__file__))
CLIENT = "p11-kit-client.so"


def client():
    return glob.glob(f"/usr/lib/*/pkcs11/{CLIENT}")[0]


def build_loop(work):
    flags = subprocess.run(["pkg-config", "--cflags", "p11-kit-1"], check=True, capture_output=True, text=True).stdout.split()
    subprocess.run(["cc", "-O2", *flags, "-o", f"{work}/sign-loop", f"{HERE}/sign-loop.c", "-ldl", "-lpthread"], check=True)


def ready(process, path):
    while not os.path.exists(path):
        if process.poll() is not None:
            raise SystemExit(f"{process.args[0]} has ended")
        time.sleep(0.01)


@contextlib.contextmanager
def service(bin, work, env, key):
    """`certprov serve` with the identity bench, on all processors. Its process, and the environment of its callers."""
    place = f"{work}/socket"
    for name in ("etc", "run", "state"):
        os.makedirs(f"{place}/{name}", 0o700)
    tunnels.write(f"{place}/etc/bench.properties", f"""CertificateProvider = pem
CertificateProvider.pem.certificate = {work}/chain.pem
CertificateProvider.pem.key = {key}
CertificateProvider.pem.usage = server
Serve.allow.1 = uid:{os.geteuid()}
""" + (f"CertificateProvider.pem.key-pin-source = file:{work}/pin\n" if key.startswith("pkcs11:") else ""))
    tunnels.write(f"{place}/etc/serve.properties", f"""Serve.identities = {place}/etc/bench.properties
Serve.pkcs11-socket = {place}/run/pkcs11.sock
""")
    with open(f"{place}/log", "w") as log:
        process = subprocess.Popen([f"{bin}/certprov", "serve", "--directory", f"{place}/etc"], stdout=log, stderr=log,
                                   env=dict(env, RUNTIME_DIRECTORY=f"{place}/run", STATE_DIRECTORY=f"{place}/state"))
    try:
        ready(process, f"{place}/run/pkcs11.sock")
        remote = dict(env, P11_KIT_SERVER_ADDRESS=f"unix:path={place}/run/pkcs11.sock")
        command = [f"{work}/sign-loop", client(), "certprov", "", "connections", "1"]
        while subprocess.run(command, env=remote, stderr=subprocess.DEVNULL).returncode != 0:
            time.sleep(0.1)
        yield process, remote
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def p11_kit(work, env, uri, module):
    path = f"{work}/server.sock"
    process = subprocess.Popen(["p11-kit", "server", "--foreground", "--name", path, "--provider", module, uri],
                               env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        ready(process, path)
        yield dict(env, P11_KIT_SERVER_ADDRESS=f"unix:path={path}")
    finally:
        process.terminate()
        process.wait()


def signatures(work, env, label, pin, callers):
    """How many a second."""
    command = [f"{work}/sign-loop", client(), label, pin, "1", str(SECONDS), "held"]
    running = []
    # One after the other: SoftHSM fails now and then if several processes load it at one time.
    for _ in range(callers):
        running.append(subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        if running[-1].stdout.readline() != "ready\n":
            raise SystemExit("sign-loop failed")
    for process in running:
        process.stdin.write("\n")
        process.stdin.flush()
    return sum(float(process.communicate()[0].split()[1]) for process in running)


@contextlib.contextmanager
def nginx(work, env, name, key):
    place, port = f"{work}/nginx-{name}", tunnels.free_port()
    os.mkdir(place)
    tunnels.write(f"{place}/nginx.conf", f"""daemon off;
pid nginx.pid;
user {pwd.getpwuid(os.geteuid()).pw_name};
worker_processes 1;
ssl_engine pkcs11;
env PKCS11_MODULE_PATH;
env P11_KIT_SERVER_ADDRESS;
events {{ }}
http {{
    access_log off;
    server {{
        listen 127.0.0.1:{port} ssl;
        ssl_protocols TLSv1.3;
        ssl_session_tickets off;
        ssl_certificate {work}/chain.pem;
        ssl_certificate_key "{key}";
        return 204;
    }}
}}
""")
    one = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))]
    with open(f"{place}/log", "w") as log:
        process = subprocess.Popen([*one, "nginx", "-p", place, "-c", "nginx.conf", "-e", "stderr"], stdout=log, stderr=log,
                                   env=dict(env, PKCS11_MODULE_PATH=client()))
    try:
        ready(process, f"{place}/nginx.pid")
        yield port
    finally:
        process.terminate()
        process.wait()


def handshakes(port):
    """How many a second. A client counts those in its own time."""
    others = sorted(os.sched_getaffinity(0))[1:]
    place = ["taskset", "--cpu-list", ",".join(map(str, others))] if others else []
    command = [*place, "openssl", "s_time", "-connect", f"127.0.0.1:{port}", "-new", "-time", str(SECONDS)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(CLIENTS)]
    begin = time.perf_counter()
    lines = "".join(process.communicate()[0] for process in running).splitlines()
    elapsed = time.perf_counter() - begin
    return sum(int(line.split()[0]) for line in lines if "real seconds" in line) / elapsed


def compare(title, unit, measures):
    """Measures in turns, after one that does not count. The first is certprov's."""
    found = {name: [] for name in measures}
    for turn in range(ROUNDS + 1):
        for name, measure in measures.items():
            value = measure()
            if turn > 0:
                found[name].append(value)
    own, *peers = found
    print(f"{title}: {', '.join(f'{name} {statistics.median(values):.0f} {unit} a second' for name, values in found.items())}")
    for peer in peers:
        print(f"  {own} to {peer}: {ratios.of_times(found[own], found[peer])}")


def token_socket(bin, work, env, pin, uri, module):
    build_loop(work)
    key = f"{uri}?module-path={module}"
    with service(bin, work, env, key) as (process, remote), p11_kit(work, env, uri, module) as peer:
        for callers in (1, 16):
            compare(f"Signatures with a P-256 key in SoftHSM, {callers} callers", "signatures", {
                "certprov": lambda: signatures(work, remote, "certprov", "", callers),
                "p11-kit server": lambda: signatures(work, peer, "bench", pin, callers),
            })
        subprocess.run(["taskset", "--all-tasks", "--cpu-list", "--pid", str(min(os.sched_getaffinity(0))), str(process.pid)],
                       check=True, stdout=subprocess.DEVNULL)
        by_name = "engine:pkcs11:pkcs11:token={};object=bench;type=private{}"
        with nginx(work, remote, "socket", by_name.format("certprov", "")) as socket, \
                nginx(work, env, "file", f"{work}/key.pem") as file, \
                nginx(work, peer, "server", by_name.format("bench", f"?pin-value={pin}")) as server:
            compare("Handshakes of nginx, TLS 1.3, P-256", "handshakes", {
                "by the socket": lambda: handshakes(socket), "with a PEM file": lambda: handshakes(file),
                "by p11-kit server": lambda: handshakes(server)})
