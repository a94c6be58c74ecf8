"""Enrolment: the whole process against strongSwan's pki and against scepclient, and a thousand in one process.

The servers are those of the tests. A run begins without state, or with the key of an enrolment that has found no end,
which certprov keeps: the same as a key that somebody has made beforehand.
"""
import contextlib
import json
import os
import shutil
import signal
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
    if bench:
        many(bench, env, work)
