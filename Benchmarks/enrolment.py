"""Enrolment: the whole process against strongSwan's pki, scepclient and lego, and a thousand in one process.

The servers are those of the tests. A run begins without state, or with the key of an enrolment that has found no end,
which certprov keeps: the same as a key that somebody has made beforehand.
"""
import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import time

import ratios

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "Tests")
USER, PASSWORD, CHALLENGE = "estuser", "estpwd", "sesame"


@contextlib.contextmanager
def server(*words):
    """Runs a server of the tests; its process and its port."""
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        yield process, json.loads(process.stdout.readline())["port"]
    finally:
        process.stdin.close()
        process.wait()


def write(path, text):
    with open(path, "w") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)


class Runs:
    """Commands that run in turns, so that noise meets them all, each in a directory that is made anew for each run."""

    def __init__(self, work, env):
        self.work, self.env, self.commands = work, env, {}

    def add(self, name, words, prepared=None):
        self.commands[name] = (words, prepared)

    def place(self, name, prepared):
        """A directory: empty, or a copy of one."""
        place = f"{self.work}/{name}"
        shutil.rmtree(place, ignore_errors=True)
        if prepared:
            shutil.copytree(prepared, place)
        else:
            os.mkdir(place, 0o700)
        return place, dict(self.env, XDG_STATE_HOME=f"{place}/state")

    def timed(self, name, words, prepared):
        place, env = self.place(name, prepared)
        begin = time.perf_counter()
        with open(f"{place}/errors", "w") as errors:
            status = subprocess.run(words, env=env, cwd=place, stdout=subprocess.DEVNULL, stderr=errors).returncode
        elapsed = time.perf_counter() - begin
        if status != 0:
            raise SystemExit(f"{name} failed ({status}): {open(f'{place}/errors').read()}")
        return elapsed

    def times(self, rounds):
        times = {name: [] for name in self.commands}
        for turn in range(rounds + 2):
            for name, (words, prepared) in self.commands.items():
                elapsed = self.timed(name, words, prepared)
                if turn >= 2:
                    times[name].append(elapsed)
        return times

    def print(self, rounds, own, peer, text):
        times = self.times(rounds)
        medians = {name: statistics.median(values) for name, values in times.items()}
        print(f"  {text[0]} {medians[own] * 1e3:.0f} ms, {text[1]} {medians[peer] * 1e3:.0f} ms:"
              f" {ratios.of_times(times[own], times[peer])}")
        self.commands = {}


def fetch(bin, **settings):
    words = [f"{bin}/certprov", "fetch", "--provider", "mdm", "--set", "subject=CN=bench,O=Example"]
    for name, value in settings.items():
        words += ["--set", f"{name.replace('_', '-')}={value}"]
    return words


def unanswered(runs, words):
    """A directory with the key of an enrolment that the server has not answered. What it refuses is not kept."""
    place, env = runs.place("unanswered", None)
    status = subprocess.run(words, env=env, cwd=place, capture_output=True).returncode
    if status not in (69, 75):
        raise SystemExit(f"was to have no answer, and has ended with {status}: {words}")
    shutil.rmtree(f"{place}-kept", ignore_errors=True)
    return shutil.move(place, f"{place}-kept")


def est(bin, runs, work):
    folder = f"{work}/est"
    os.mkdir(folder)
    # pki reads base64 in one line only. The first request gets no answer.
    with server(f"{TESTS}/EnrolmentServer/est-server", "--directory", folder, "--auth", "basic", "--fault",
                "close-after-request*1+unwrapped+cacerts-unwrapped") as (_, port):
        write(f"{work}/password", PASSWORD)
        url = f"https://localhost:{port}"
        anchors = f"--cacert {folder}/ca.pem --cacert {folder}/intermediate.pem"
        enrol = f"pki --est --url {url} {anchors} --userpass {USER}:{PASSWORD} --outform pem"
        make = ("pki --gen --type ecdsa --size 256 --outform pem >key.pem &&"
                " pki --req --type ecdsa --in key.pem --dn 'CN=bench, O=Example' --outform pem >csr.pem")
        settings = dict(protocol="est", url=url, trust_anchors=f"{folder}/ca.pem", username=USER)
        ours = fetch(bin, **settings, password_source=f"file:{work}/password")

        print("EST enrolment, P-256, whole process")
        place, env = runs.place("prepared", None)
        subprocess.run(["sh", "-c", make], env=env, cwd=place, check=True, stderr=subprocess.DEVNULL)
        kept = unanswered(runs, ours)
        runs.add("certprov", ours, kept)
        runs.add("pki", [*enrol.split(), "--in", f"{place}/csr.pem"])
        runs.print(60, "certprov", "pki", ("with the key ready: certprov fetch", "pki --est"))
        runs.add("certprov", ours)
        ask = f"pki --estca --url {url} --cacert {folder}/ca.pem --caout ca.pem --outform pem"
        runs.add("pki", ["sh", "-c", f"{make} && {ask} && {enrol} --in csr.pem >certificate.pem"])
        runs.print(30, "certprov", "pki", ("all of it: certprov fetch", "pki --gen, --req, --estca and --est"))


def scep(bin, runs, work):
    folder = f"{work}/scep"
    os.mkdir(folder)
    with server(f"{TESTS}/SCEPServer/scep-server", "--depot", folder, "-challenge", CHALLENGE, "-allowrenew",
                "0") as (process, port):
        write(f"{work}/challenge", CHALLENGE)
        url = f"http://127.0.0.1:{port}/scep"
        lines = subprocess.run(["openssl", "x509", "-in", f"{folder}/ca.pem", "-noout", "-fingerprint", "-sha256"],
                               check=True, capture_output=True, text=True).stdout
        settings = dict(protocol="scep", url=url, ca_fingerprint=lines.split("=")[1].strip())
        ours = fetch(bin, **settings, challenge_source=f"file:{work}/challenge")
        theirs = ["scepclient", "-server-url", url, "-private-key", "key.pem", "-certificate", "certificate.pem", "-cn",
                  "bench", "-organization", "Example", "-challenge", CHALLENGE]

        print("SCEP enrolment, RSA-2048, whole process")
        place, env = runs.place("prepared", None)
        subprocess.run(theirs, env=env, cwd=place, check=True, capture_output=True)
        for name in ("certificate.pem", "csr.pem"):
            os.remove(f"{place}/{name}")
        process.send_signal(signal.SIGSTOP)
        kept = unanswered(runs, [*ours, "--set", "timeout=1"])
        process.send_signal(signal.SIGCONT)
        runs.add("certprov", ours, kept)
        runs.add("scepclient", theirs, place)
        runs.print(60, "certprov", "scepclient", ("with the key ready: certprov fetch", "scepclient"))
        runs.add("certprov", ours)
        runs.add("scepclient", theirs)
        # How long a key takes is luck.
        runs.print(100, "certprov", "scepclient", ("and with making it: certprov fetch", "scepclient"))


@contextlib.contextmanager
def pebble(folder):
    """Runs Debian's pebble; the URL of its directory, and the port that it looks at for http-01."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(6)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-days", "1",
                    "-keyout", f"{folder}/key.pem", "-out", f"{folder}/ca.pem", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    write(f"{folder}/pebble.json", json.dumps({"pebble": {
        "listenAddress": f"127.0.0.1:{ports[0]}", "managementListenAddress": f"127.0.0.1:{ports[1]}",
        "certificate": f"{folder}/ca.pem", "privateKey": f"{folder}/key.pem", "httpPort": ports[4], "tlsPort": ports[5]}}))
    env = dict(os.environ, PEBBLE_VA_NOSLEEP="1", PEBBLE_WFE_NONCEREJECT="0", PEBBLE_AUTHZREUSE="0")
    dns = f"127.0.0.1:{ports[2]}"
    commands = [["pebble-challtestsrv", "-dns01", dns, "-management", f"127.0.0.1:{ports[3]}", "-defaultIPv6", "", "-http01", "",
                 "-https01", "", "-tlsalpn01", ""], ["pebble", "-config", f"{folder}/pebble.json", "-dnsserver", dns]]
    processes = [subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for words in commands]
    url = f"https://localhost:{ports[0]}/dir"
    try:
        ask = ["curl", "--silent", "--cacert", f"{folder}/ca.pem", "--output", "/dev/null", url]
        while subprocess.run(ask).returncode != 0:
            if any(one.poll() is not None for one in processes):
                raise SystemExit("pebble does not start")
            time.sleep(0.05)
        yield url, ports[4]
    finally:
        for one in processes:
            one.terminate()
            one.wait()


def acme(bin, runs, work):
    folder = f"{work}/acme"
    os.mkdir(folder)
    with pebble(folder) as (url, port):
        runs.env = dict(runs.env, LEGO_CA_CERTIFICATES=f"{folder}/ca.pem")
        ours = [f"{bin}/certprov", "fetch", "--force", "--provider", "acme"]
        for value in (f"directory={url}", f"trust-anchors={folder}/ca.pem", "agree-terms=true", "proxy=none",
                      "identifiers=dns:web.example.test", f"http-listen=127.0.0.1:{port}"):
            ours += ["--set", value]
        lego = ["lego", "--path", "lego", "--server", url, "--accept-tos", "--email", "a@example.test", "--domains",
                "web.example.test", "--http", "--http.port", f"127.0.0.1:{port}"]
        renew = [*lego, "renew", "--days", "4000", "--no-random-sleep"]

        print("ACME enrolment, P-256, http-01, whole process")
        runs.add("certprov", ours)
        runs.add("lego", [*lego, "run"])
        runs.print(10, "certprov", "lego", ("with a new account: certprov fetch", "lego run"))
        kept = {}
        for name, words in (("certprov", ours), ("lego", [*lego, "run"])):
            place, env = runs.place(f"{name}-kept", None)
            subprocess.run(words, env=env, cwd=place, check=True, capture_output=True)
            kept[name] = place
        runs.add("certprov", ours, kept["certprov"])
        runs.add("lego", renew, kept["lego"])
        runs.print(10, "certprov", "lego", ("a renewal: certprov fetch --force", "lego renew"))


def many(bench, env, work):
    folder = f"{work}/many"
    os.mkdir(folder)
    with server(f"{TESTS}/EnrolmentServer/est-server", "--directory", folder) as (_, port):
        output = subprocess.run(
            [f"{bench}/certprov-bench", "enrol", f"https://localhost:{port}", f"{folder}/ca.pem", f"{work}/many-state",
             "1000", "8"], env=env, check=True, capture_output=True, text=True).stdout
    values = {name: float(value) for name, value in (line.split() for line in output.splitlines())}
    print("A thousand EST enrolments in one process, eight at once")
    print(f"  {values['enrolments-per-second']:.0f} a second; peak memory {values['peak-100-kib'] / 1024:.1f} MiB after"
          f" 100 and {values['peak-all-kib'] / 1024:.1f} MiB after all: ratio"
          f" {values['peak-all-kib'] / values['peak-100-kib']:.2f}; at most {values['threads']:.0f} threads and"
          f" {values['descriptors']:.0f} descriptors")


def enrolment(bin, bench, work, env):
    runs = Runs(work, env)
    est(bin, runs, work)
    scep(bin, runs, work)
    acme(bin, runs, work)
    if bench:
        many(bench, env, work)
