"""Server tunnels beside stunnel and haproxy: mutual TLS 1.3 with the same certificate, P-256, without resumption, in front of the same
program.

A tunnel has one processor, the clients and the program behind it (tunnel-load.c) the others. Beside each rate is the tunnel's share of its
processor: well below 100 %, the clients or another program of the host were the limit. The processor's time for each connection or
megabyte has no part of theirs.
"""
import contextlib
import os
import resource
import socket
import statistics
import subprocess
import time

import ratios

ROUNDS, SECONDS = 5, 2
CLIENTS, IDLE = 16, 5000
TOKEN = ", key in SoftHSM"
TICK = os.sysconf("SC_CLK_TCK")
HERE = os.path.dirname(os.path.abspath(__file__))


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def write(path, text):
    with open(path, "w") as file:
        file.write(text)
    return path


def certprov(bin, work, port, target, key):
    properties = write(f"{work}/tunnel-{port}.properties", f"""CertificateProvider = pem
CertificateProvider.pem.certificate = {work}/chain.pem
CertificateProvider.pem.key = {key}
CertificateProvider.pem.usage = server
TrustAnchors = {work}/ca.pem
Peers.allow = any
""" + (f"CertificateProvider.pem.key-pin-source = file:{work}/pin\n" if key.startswith("pkcs11:") else ""))
    return [f"{bin}/certprov", "tunnel", "server", "--config", properties, "--listen", f"127.0.0.1:{port}",
            "--target", f"127.0.0.1:{target}"]


def stunnel(bin, work, port, target, key):
    uri, _, module = key.partition("?module-path=")
    engine = f"""engine = pkcs11
engineCtrl = MODULE_PATH:{module}
engineCtrl = PIN:{open(f"{work}/pin").read()}
engineCtrl = INIT
""" if module else ""
    return ["stunnel4", write(f"{work}/stunnel-{port}.conf", f"""foreground = yes
debug = err
pid =
{engine}[tunnel]
{"engineId = pkcs11" if module else ""}
accept = 127.0.0.1:{port}
connect = 127.0.0.1:{target}
cert = {work}/chain.pem
key = {uri}
CAfile = {work}/ca.pem
verifyChain = yes
sessionResume = no
options = NO_TICKET
socket = l:TCP_NODELAY=1
socket = r:TCP_NODELAY=1
""")]


def haproxy(bin, work, port, target, key):
    with open(f"{work}/haproxy.pem", "w") as file:
        for name in ("chain.pem", "key.pem"):
            with open(f"{work}/{name}") as part:
                file.write(part.read())
    return ["haproxy", "-db", "-q", "-f", write(f"{work}/haproxy-{port}.cfg", f"""global
    maxconn {IDLE + 1000}
    tune.ssl.cachesize 0
defaults
    mode tcp
    timeout connect 10s
    timeout client 1h
    timeout server 1h
frontend tunnel
    bind 127.0.0.1:{port} ssl crt {work}/haproxy.pem ca-file {work}/ca.pem verify required no-tls-tickets
    default_backend program
backend program
    server program 127.0.0.1:{target}
""")]


def state(process):
    """Its memory, descriptors and threads, as a text."""
    with open(f"/proc/{process.pid}/status") as file:
        status = dict(line.split(":", 1) for line in file)
    size = {name: int(status[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon", "VmHWM")}
    return (f"{size['VmRSS']:.1f} MiB ({size['RssAnon']:.1f} its own; at most {size['VmHWM']:.1f}),"
            f" {len(os.listdir(f'/proc/{process.pid}/fd'))} descriptors, {int(status['Threads'])} threads")


class Running:
    """A tunnel that runs on one processor."""

    def __init__(self, words, env, log):
        with open(log, "w") as errors:
            self.process = subprocess.Popen(["taskset", "--cpu-list", str(min(os.sched_getaffinity(0))), *words], env=env,
                                            stdout=errors, stderr=errors)

    def wait(self, port):
        for _ in range(500):
            if self.process.poll() is not None:
                break
            with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port)):
                return
            time.sleep(0.02)
        raise SystemExit(f"{self.process.args[3]} does not listen")

    def proc(self, name):
        with open(f"/proc/{self.process.pid}/{name}") as file:
            return file.read()

    def seconds(self):
        """The time of its processor."""
        values = self.proc("stat").rpartition(")")[2].split()
        return (int(values[11]) + int(values[12])) / TICK

    def memory(self):
        """In KiB, each page of memory by the number of its users."""
        return int(next(line for line in self.proc("smaps_rollup").splitlines() if line.startswith("Pss:")).split()[1])

    def end(self):
        self.process.kill()
        self.process.wait()


class Load:
    """The clients, and the program behind the tunnels, on the other processors."""

    def __init__(self, work):
        self.program = f"{work}/tunnel-load"
        subprocess.run(["cc", "-O2", "-o", self.program, f"{HERE}/tunnel-load.c", "-lssl", "-lcrypto", "-lpthread"], check=True)
        others = sorted(os.sched_getaffinity(0))[1:]
        self.place = ["taskset", "--cpu-list", ",".join(map(str, others))] if others else []
        self.files = [f"{work}/chain.pem", f"{work}/key.pem"]

    def start(self, *words):
        return subprocess.Popen([*self.place, self.program, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                text=True)

    @contextlib.contextmanager
    def target(self):
        process = self.start("target")
        try:
            yield int(process.stdout.readline())
        finally:
            process.communicate()

    def run(self, what, port, *more):
        process = self.start(what, port, *self.files, *more)
        output = process.communicate()[0]
        if process.returncode != 0:
            raise SystemExit(f"tunnel-load {what} failed")
        return float(output)

    @contextlib.contextmanager
    def held(self, what, port, count):
        process = self.start(what, port, *self.files, count)
        if process.stdout.readline() != "open\n":
            raise SystemExit(f"tunnel-load {what} failed")
        try:
            yield
        finally:
            process.communicate()


def measure(load, running, what, *more):
    """How many a second, the tunnel's share of its processor, and its microseconds for one."""
    tunnel, port = running
    before, begin = tunnel.seconds(), time.perf_counter()
    rate = load.run(what, port, *more)
    used, elapsed = tunnel.seconds() - before, time.perf_counter() - begin
    return rate, used / elapsed, used / elapsed / rate * 1e6


def compare(load, running, what, clients, unit):
    found = {name: [] for name in running}
    for turn in range(ROUNDS + 1):
        for name, one in running.items():
            value = measure(load, one, what, clients, SECONDS)
            if turn > 0:
                found[name].append(value)
    for name, values in found.items():
        rate, share, cost = (statistics.median(column) for column in zip(*values))
        print(f"  {name}: {rate:.0f} {unit} a second, {share:.0%} of its processor, {cost:.0f} us for one")
        for peer in found if name.startswith("certprov") else ():
            if peer != name and peer.endswith(TOKEN) == name.endswith(TOKEN):
                rates, costs = ([[value[column] for value in found[one]] for one in (name, peer)] for column in (0, 2))
                print(f"    to {peer}: {ratios.of_times(*rates)}; of the processor's time {ratios.of_times(*costs)}")


def tunnels(bin, work, env, uri, module):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < 3 * IDLE:
        return print(f"Tunnels: not measured, {3 * IDLE} descriptors are not permitted (ulimit -n)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    key, token = f"{work}/key.pem", f"{uri}?module-path={module}"
    programs = {"certprov": (certprov, key), "stunnel": (stunnel, key), "haproxy": (haproxy, key),
                f"certprov{TOKEN}": (certprov, token), f"stunnel{TOKEN}": (stunnel, token)}
    load = Load(work)
    with load.target() as target, contextlib.ExitStack() as ends:
        def start(name):
            make, key = programs[name]
            port = free_port()
            tunnel = Running(make(bin, work, port, target, key), env, f"{work}/tunnel-{name}.log")
            ends.callback(tunnel.end)
            tunnel.wait(port)
            load.run("connect", port, CLIENTS, 0.2)
            return tunnel, port

        print("Server tunnels, mutual TLS 1.3, P-256: memory of connections, idle from the start, and after 1 MiB from the client")
        for name in programs:
            if name.endswith(TOKEN):
                continue
            for what, count in (("idle", IDLE), ("used", IDLE // 5)):
                tunnel, port = start(name)
                before = tunnel.memory()
                with load.held(what, port, count):
                    after = tunnel.memory()
                tunnel.end()
                print(f"  {name}, {count} {what}: {before / 1024:.1f} MiB, then {after / 1024:.0f} MiB:"
                      f" {(after - before) / count:.1f} KiB each")
        running = {name: start(name) for name in programs}
        print(f"New connections, with {CLIENTS} clients")
        compare(load, running, "connect", CLIENTS, "connections")
        running = {name: one for name, one in running.items() if not name.endswith(TOKEN)}
        for what, text in (("down", "from the program to the client"), ("up", "from the client to the program")):
            for clients in (1, 8):
                print(f"Bytes {text}, {clients} connection{'s' if clients > 1 else ''}")
                compare(load, running, what, clients, "MB")
