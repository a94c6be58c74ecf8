"""Registration with the platform server of the examples: the whole process, and requests over the registered identity,
against curl with the same certificate; and what the vault's passcode costs, against openssl.

Both sides use the same server. It answers each request by reading its database, and writes each registration to the disk.
"""
import contextlib
import json
import os
import statistics
import subprocess

import ratios
from enrolment import Runs, write

APPLICATION, PASSCODE = "com.example.app", "correct horse battery"
REQUESTS = 1000


@contextlib.contextmanager
def platform_server(program, work):
    """Runs the server with the certificates of make_files; its URL."""
    words = ["--application", APPLICATION, "--state", f"{work}/platform", "--certificate", f"{work}/chain.pem", "--key",
             f"{work}/key.pem", "--client-ca", f"{work}/ca.pem", "--certificate-port", "0", "--password-port", "0",
             "--setting", "PasswordPolicyDefaultPasswordAllowed=true"]
    process = subprocess.Popen([program, *words], stdout=subprocess.PIPE)
    try:
        yield json.loads(process.stdout.readline())["certificatePort"]
    finally:
        process.terminate()
        process.wait()


def properties(work, port, name, **settings):
    """A property file with a PKCS#12 file as the identity."""
    lines = {"Host": "localhost", "Port": port, "SecurityConfiguration": "SSO", "ApplicationId": APPLICATION,
             "TrustAnchors": f"{work}/ca.pem", "CertificateProvider": "pkcs12",
             "CertificateProvider.pkcs12.path": f"{work}/one.p12",
             "CertificateProvider.pkcs12.password-source": "env:PASSWORD", **settings}
    write(f"{work}/{name}", "".join(f"{key} = {value}\n" for key, value in lines.items()))
    return f"{work}/{name}"


def register(bin, bench, program, work, env):
    runs = Runs(work, env)
    with platform_server(program, work) as port:
        write(f"{work}/passcode", PASSCODE)
        write(f"{work}/entry.xml", '<entry xmlns="http://www.w3.org/2005/Atom" xmlns:m="http://schemas.microsoft.com/ado/'
              '2007/08/dataservices/metadata"><content type="application/xml"><m:properties/></content></entry>')
        sealed = properties(work, port, "sealed.properties", **{"Passcode.source": f"file:{work}/passcode"})
        open_ = properties(work, port, "open.properties", **{"Passcode.default-allowed": "true"})
        curl = ["curl", "--disable", "--noproxy", "*", "--silent", "--show-error", "--fail", "--cacert", f"{work}/ca.pem",
                "--cert-type", "P12", "--cert", f"{work}/one.p12:{env['PASSWORD']}"]
        url = f"https://localhost:{port}/odata"
        post = [*curl, "--header", "Content-Type: application/atom+xml; charset=UTF-8", "--data", f"@{work}/entry.xml",
                f"{url}/applications/latest/{APPLICATION}/Connections"]
        derive = ["openssl", "kdf", "-keylen", "32", "-kdfopt", f"pass:{PASSCODE}", "-kdfopt", "salt:0123456789abcdef",
                  "-kdfopt", "n:32768", "-kdfopt", "r:8", "-kdfopt", "p:3", "-kdfopt", "maxmem_bytes:67108864", "SCRYPT"]

        print("Registration over mutual TLS, P-256, whole process")
        runs.add("certprov", [f"{bin}/certprov", "register", "--config", open_])
        runs.add("curl", post)
        runs.print(60, "certprov", "curl", ("with a vault without a passcode: certprov register", "curl"))
        runs.add("certprov", [f"{bin}/certprov", "register", "--config", sealed])
        runs.add("both", ["sh", "-c", '"$@" && exec openssl ' + " ".join(f"'{word}'" for word in derive[1:]), "sh", *post])
        runs.print(30, "certprov", "both", ("with a passcode: certprov register", "curl and openssl kdf"))

        if bench:
            requests(bench, runs, open_, curl, post, f"/odata/{APPLICATION}/Hello", f"https://localhost:{port}")

        print("The vault's passcode, scrypt with 32 MiB three times, whole process")
        place, environment = runs.place("registered", None)
        subprocess.run([f"{bin}/certprov", "register", "--config", sealed], env=environment, check=True,
                       capture_output=True)
        unlock = [f"{bin}/certprov", "unlock", "--config", sealed]
        memory = {name: peak_memory(words, environment, work) for name, words in (("certprov", unlock), ("openssl", derive))}
        runs.add("certprov", unlock, os.path.join(work, "registered"))
        runs.add("openssl", derive)
        runs.print(30, "certprov", "openssl", ("certprov unlock", "openssl kdf"))
        print(f"  peak memory {memory['certprov']:.1f} MiB, openssl {memory['openssl']:.1f} MiB:"
              f" ratio {memory['certprov'] / memory['openssl']:.2f}")


def peak_memory(words, env, work):
    """In MiB, the median; through time(1) as in run."""
    values = []
    for _ in range(10):
        subprocess.run(["/usr/bin/time", "--format=%M", "--output=memory", *words], env=env, cwd=work, check=True,
                       capture_output=True)
        with open(f"{work}/memory") as file:
            values.append(int(file.read()) / 1024)
    return statistics.median(values)


def requests(bench, runs, properties, curl, post, target, server):
    """One after the other over one connection: the median of a run's requests, without the first, which connects. And in turns
    with them those of AsyncHTTPClient."""
    subprocess.run([*post, "--header", "X-SMP-APPCID: bench"], check=True, capture_output=True)
    theirs = [*curl, "--header", "X-SMP-APPCID: bench", "--write-out", "%{time_total} %{num_connects}\n", "--output", "/dev/null",
              f"{server}{target}?[0-{REQUESTS}]"]
    own, peer, clients, connections = [], [], [], 0
    for _ in range(9):
        place, env = runs.place("requests", None)
        words = [f"{bench}/certprov-bench", "requests", properties, f"{place}/state", target, str(REQUESTS)]
        lines = subprocess.run(words, env=env, check=True, capture_output=True, text=True).stdout.splitlines()
        values = {name: float(value) for name, value in (line.split() for line in lines)}
        own.append(values["request-us"])
        clients.append(values["async-http-client-us"])
        connections = max(connections, int(values["connections"]))
        lines = subprocess.run(theirs, check=True, capture_output=True, text=True).stdout.splitlines()
        times = [line.split() for line in lines]
        if sum(int(count) for _, count in times) != 1:
            raise SystemExit("curl has not kept its connection")
        peer.append(statistics.median(float(time) for time, _ in times[1:]) * 1e6)
    print("Requests over a registered identity, one after the other")
    print(f"  {statistics.median(own):.0f} us each, curl {statistics.median(peer):.0f} us: {ratios.of_times(own, peer)};"
          f" the registration and {REQUESTS} requests need {connections} connection{'' if connections == 1 else 's'}")
    print(f"  AsyncHTTPClient {statistics.median(clients):.0f} us: {ratios.of_times(own, clients)}")
