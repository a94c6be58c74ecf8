"""The command line."""

import argparse

from . import faults
from .messages import HTTPError

SCHEMES = ("basic", "digest", "bearer", "oauth", "certificate")


def auth(text):
    if text != "none" and not set(text.split("+")) <= set(SCHEMES):
        raise argparse.ArgumentTypeError(f"none, or words of {', '.join(SCHEMES)} joined by +")
    return text


def digest_algorithm(text):
    if not set(text.split("+")) <= {"MD5", "MD5-sess", "SHA-256", "SHA-256-sess"}:
        raise argparse.ArgumentTypeError("MD5, SHA-256, either with -sess, or several joined by +")
    return text


def fault(text):
    try:
        faults.parse("fault-" + text)
    except HTTPError as error:
        raise argparse.ArgumentTypeError(error.text) from None
    return text


def parser():
    parser = argparse.ArgumentParser(prog="est-server", description="An EST server for tests, on 127.0.0.1 only.")
    add = parser.add_argument
    add("--directory", required=True, help="where certificates and the log go")
    add("--port", type=int, default=0, help="default: any free one")
    add("--tls", choices=("1.2", "1.3", "any"), default="any")
    add("--ca-key", choices=("rsa", "ec"), default="ec", help="keys of the authorities and the server")
    add("--both-sides", action="store_true", help="issue for servers too, and not for clients alone")
    add("--serverkeygen", choices=("pkcs8", "pkcs1"), default="pkcs8", help="pkcs1 is labelled PKCS#8 too")

    add("--auth", type=auth, default="none", help=f"none, or {', '.join(SCHEMES)}; several with +")
    add("--refuse-clients", choices=("unknown-ca", "close", "close-notify"),
        help="in the handshake, where they show a certificate of this server's authorities")  # fmt: skip
    add("--user", default="estuser")
    add("--password", default="estpwd")
    add("--token", default="esttoken", help="for bearer")
    add("--digest-algorithm", type=digest_algorithm, default="SHA-256", help="MD5, SHA-256, -sess; several with +")
    add("--nonce-uses", type=int, default=0, metavar="N", help="a Digest nonce is stale after that many")
    add("--client-id", default="estclient", help="for oauth")
    add("--client-secret", default="estsecret", help="for oauth")
    add("--scope", default="", help="for oauth: the scopes there are, space-joined")
    add("--refresh-tokens", choices=("off", "keep", "rotate", "refuse"), default="off",
        help="for oauth: one with each grant; keep: good for ever, rotate: for one use, refuse: never")  # fmt: skip
    add("--token-uses", type=int, default=0, metavar="N", help="for oauth: a token is refused after that many requests")
    add("--token-lifetime", type=int, default=3600, metavar="SECONDS", help="for oauth: expires_in")

    add("--binding", choices=("required", "optional", "off"), default="optional", help="of the CSR to the connection")
    add("--authenticate-csrattrs", action="store_true", help="csrattrs wants authentication too")
    add("--pending", type=int, default=0, metavar="N", help="answer each CSR with 202 that often")
    add("--fault", type=fault, metavar="NAME[+NAME]", help="on every path without a label, as if it were fault-NAME")
    add("--retry-after", default="1", help="of an answer 202")
    return parser
