"""The command line. Start it in the folder above this one (or with that as PYTHONPATH), after
`pip install -r authority/requirements.txt`:

    python3 -m authority serve --state DIR --port 0 --ports-file F
    python3 -m authority code --state DIR alice@example.com      # an activation code, for `dvs enrol`
    python3 -m authority register --state DIR --name shop --redirect-uri https://localhost:8080/login
    python3 -m authority tries --state DIR [USER]                # the keys with their wrong tries

F gets {"port": …, "url": …} once it listens; DIR/ca.pem is what a client trusts. SIGTERM ends the authority and its
issuers. The last three also work while it serves.
"""

import argparse
import fcntl
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading

from .issuer import Issuer, IssuerClient, ticket_key
from .store import Store
from .web import Server, make_certificate

ISSUERS = ("dta1", "dta2")
WARNING = "This authority is for tests and demonstrations only: it is not audited, and its secrets are plain files."


def write_ports(path, content):
    if path:
        try:
            with open(path + ".new", "w") as file:
                json.dump(content, file)
            os.replace(path + ".new", path)
        except OSError as error:
            sys.exit(f"--ports-file {path} cannot be written: {error.strerror}. Set another one.")


def redirect_uri(text):
    """RFC 6749, section 3.1.2: absolute, without a fragment. Plain HTTP does not leave this host."""
    origin = r"(https://[A-Za-z0-9.:\[\]-]+|http://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]+)?)"
    if not re.fullmatch(origin + "([/?][!$-~]*)?", text):
        raise argparse.ArgumentTypeError("must be an https: URL, or an http: one of localhost, without a fragment")
    return text


def run(server):
    """Serves until SIGTERM or SIGINT."""
    threading.Thread(target=server.serve_forever, daemon=True).start()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    server.shutdown()


def serve_issuer(options):
    if not options.child:
        make_certificate(options.state)
    server = Server(options.port, options.state, Issuer(options.state, options.name).routes)
    write_ports(options.ports_file, {"port": server.server_port, "url": server.url})
    if options.child:
        print(server.url, flush=True)
        # The end of stdin is the end of the authority, however it came.
        threading.Thread(target=lambda: (os.read(0, 1), os._exit(0)), daemon=True).start()
    else:
        print(WARNING, flush=True)
    run(server)


def serve(options):
    from .oidc import Provider
    from .verifier import Verifier

    print(WARNING, flush=True)
    lock = open(os.path.join(options.state, "lock"), "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"Another authority serves {options.state}. End it first.")
    make_certificate(options.state)
    # Before the issuers take ports, of which one might be this.
    try:
        server = Server(options.port, options.state, {})
    except (OSError, OverflowError) as error:
        sys.exit(f"Port {options.port} cannot be opened: {error}. Choose another by --port, or 0 for any.")
    context = ssl.create_default_context(cafile=os.path.join(options.state, "ca.pem"))
    children = [subprocess.Popen(
        [sys.executable, "-m", "authority", "issuer", "--state", options.state, "--name", name, "--child"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for name in ISSUERS]
    try:
        issuers = []
        for name, child in zip(ISSUERS, children):
            url = child.stdout.readline().strip()
            if not url:
                sys.exit(f"Issuer {name} does not start.")
            issuers.append(IssuerClient(name, url, ticket_key(options.state, name), context))
        verifier = Verifier(options.state, issuers, server.url, options.company)
        server.routes = verifier.routes | Provider(options.state, verifier.store, server.url).routes
        write_ports(options.ports_file, {"port": server.server_port, "url": server.url})
        print(f"Listening at {server.url}", flush=True)
        run(server)
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait()


def main():
    parser = argparse.ArgumentParser(prog="authority", description=WARNING)
    commands = parser.add_subparsers(required=True)

    def command(name, function, **more):
        one = commands.add_parser(name, **more)
        one.add_argument("--state", required=True, help="the directory of secrets and database")
        one.set_defaults(function=function)
        return one

    for name, function in ("serve", serve), ("issuer", serve_issuer):
        one = command(name, function)
        one.add_argument("--port", type=int, default=0)
        one.add_argument("--ports-file")
        if name == "serve":
            one.add_argument("--company", default="COMPANY", help="cID of the keys")
        else:
            one.add_argument("--name", choices=ISSUERS, required=True)
            one.add_argument("--child", action="store_true", help="ends with its standard input")
    command("code", lambda options: print(Store(options.state).add_code(options.user))).add_argument("user")
    one = command("register", lambda options: print(json.dumps(
        Store(options.state).add_client(options.name, options.redirect_uri))))
    one.add_argument("--name", required=True)
    one.add_argument("--redirect-uri", required=True, type=redirect_uri)
    one = command("tries", lambda options: print(json.dumps(Store(options.state).tries(options.user))))
    one.add_argument("user", nargs="?")

    options = parser.parse_args()
    user = getattr(options, "user", None)
    if user is not None and not (user and user.isprintable()):
        parser.error("USER is empty or has characters that cannot be printed")
    os.umask(0o077)
    # Blocked in every thread, and taken by `run`.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    options.state = os.path.abspath(options.state)
    os.makedirs(options.state, exist_ok=True)
    options.function(options)


if __name__ == "__main__":
    main()
