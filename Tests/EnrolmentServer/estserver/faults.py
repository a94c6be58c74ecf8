"""Faults by name. The label of a path says which ones a request meets: /.well-known/est/fault-NAME+NAME/simpleenroll

A name may begin with the operation it is for (cacerts-, csrattrs-, token-), else it is for enrolment, and it may end
with *N for the first N requests only.
"""

import base64
import re
import secrets
import textwrap
import threading

from .messages import HTTPError

ENROLMENT = {"simpleenroll", "simplereenroll", "serverkeygen"}
RETRY = r"(-retry-(?P<retry>(date-)?\d+|absent))?"
# Each name, and what may follow it.
BEFORE_ISSUING = {
    "status": r"-(?P<status>[1-9]\d\d)" + RETRY,
    "429": "",
    "redirect": r"-(?P<status>30[12378])-(?P<where>same|other|loop|http)",
    "401-without-challenge": "",
    "hang": "",
    "half-close": "",
    "close-after-request": "",
    "pending": r"-(?P<count>\d+)" + RETRY,
}
ISSUING = {
    "old-certificate": "",
    "other-key": "",
    "other-kind": "",
    "other-names": "",
    "wrong-subject": "",
    "wrong-san": "",
    "untrusted": "",
    "expired": r"(-(?P<seconds>\d+))?",
    "not-yet-valid": r"(-(?P<seconds>\d+))?",
    "rollover": "",
    "empty-bag": "",
    "two-leaves": "",
    "no-intermediate": "",
}
BODY = {
    "garbage": "",
    "not-base64": "",
    "raw-der": "",
    "pem": "",
    "unwrapped": "",
    "crlf": "",
    "trailing-nul": "",
    "created": "",
    "empty-body": "",
    "wrong-type": "",
    "no-smime-type": "",
    "cte": r"(-(?P<value>[a-z0-9-]+))?",
    "duplicate-status-header": "",
    "no-keep-alive": "",
}
TOKEN = {
    "error": r"-(?P<error>[a-z_]+)(-(?P<status>4\d\d))?",
    "refresh-error": r"-(?P<error>[a-z_]+)(-(?P<status>4\d\d))?",
    "loud-error": "",
    "echo": r"-(?P<part>header|body)",
    "type": r"-(?P<type>[A-Za-z0-9-]+|absent)",
    "expires": r"-(?P<value>absent|text|word|null|list|-?\d+(\.\d+)?|huge)",
    "split-token": "",
    "same-token": "",
    "deep": r"-(?P<levels>\d+)",
    "large": r"-(?P<octets>\d+)",
    "not-json": "",
    "array": "",
}
DELIVERY = {
    "cut": r"-(?P<octets>\d+)(-(?P<ending>abrupt|reset))?",
    "drip": r"(-(?P<milliseconds>\d+))?",
    "slow-body": r"(-(?P<milliseconds>\d+))?",
    "hang-body": "",
    "endless": r"(-(?P<framing>length))?",
    "headers-endless": "",
    "chunked": "",
    "no-length": "",
    "close-after-answer": "",
}
ALL = BEFORE_ISSUING | ISSUING | BODY | TOKEN | DELIVERY
NAME = re.compile(r"(?:(?P<operation>cacerts|csrattrs|token)-)?(?P<rest>.+?)(?:\*(?P<times>\d+))?")


def parse(label):
    """[(name, arguments, operation, times)] of a label, none where it names no faults."""
    if not label.startswith("fault-"):
        return []
    found = []
    for text in label.removeprefix("fault-").split("+"):
        parts = NAME.fullmatch(text)
        matches = {name: re.fullmatch(name + rest, parts["rest"]) for name, rest in ALL.items()} if parts else {}
        chosen = next((name for name, match in matches.items() if match), None)
        if chosen is None:
            raise HTTPError(404, f"There is no fault {text}.")
        # A rollover is one for everybody who asks under this label.
        operation = parts["operation"] or ("any" if chosen == "rollover" else "enrolment")
        times = None if parts["times"] is None else int(parts["times"])
        found.append((chosen, matches[chosen].groupdict(), operation, times))
    return found


class Counter:
    """How often each fault that plays a number of times has played."""

    def __init__(self):
        self.played = {}
        self.lock = threading.Lock()

    def plays(self, key, times):
        with self.lock:
            self.played[key] = self.played.get(key, 0) + 1
            return self.played[key] <= times


class Faults:
    """The faults of one request. The first look at one makes it play, and be counted."""

    def __init__(self, label, operation, counter):
        group = "enrolment" if operation in ENROLMENT else operation
        self.label, self.counter, self.looked = label, counter, {}
        self.chosen = {
            name: (arguments, times) for name, arguments, wanted, times in parse(label) if wanted in (group, "any")
        }

    def get(self, name):
        """The fault's arguments if it plays, else None."""
        if name not in self.looked:
            arguments, times = self.chosen.get(name, (None, None))
            if times is not None and not self.counter.plays((self.label, name), times):
                arguments = None
            self.looked[name] = arguments
        return self.looked[name]

    def only(self, name):
        """No other fault than this one."""
        self.chosen = {chosen: how for chosen, how in self.chosen.items() if chosen == name}
        return self

    def has(self, name):
        return self.get(name) is not None

    @property
    def played(self):
        return [name for name, arguments in self.looked.items() if arguments is not None]


def wrapped(der, newline="\n"):
    return (newline.join(textwrap.wrap(base64.b64encode(der).decode(), 64)) + newline).encode()


def encoded(der, faults):
    """The base64 of a body, or what the faults make of it."""
    if faults.has("empty-body"):
        return b""
    if faults.has("garbage"):
        return wrapped(secrets.token_bytes(900))
    if faults.has("not-base64"):
        return b"<p>Your request has been received; thank you!</p>\n"
    if faults.has("raw-der"):
        return der
    if faults.has("pem"):
        return b"-----BEGIN PKCS7-----\n" + wrapped(der) + b"-----END PKCS7-----\n"
    if faults.has("unwrapped"):
        return base64.b64encode(der)
    return wrapped(der, "\r\n" if faults.has("crlf") else "\n") + (b"\0" if faults.has("trailing-nul") else b"")


def distort_headers(response, faults):
    """Applies the faults that are in the headers."""
    if faults.has("created"):
        response.status = 201
    if faults.has("wrong-type") or faults.has("no-smime-type"):
        kinds = [value for key, value in response.headers if key == "Content-Type"]
        kind = "text/html" if faults.has("wrong-type") else kinds[0].partition(";")[0]
        response.headers = [(key, kind if key == "Content-Type" else value) for key, value in response.headers]
    if (transfer := faults.get("cte")) is not None:
        response.headers.append(("Content-Transfer-Encoding", transfer["value"] or "quoted-printable"))
    if faults.has("duplicate-status-header"):
        response.headers += [("Status", f"{response.status} OK")] * 2
    if faults.has("no-keep-alive"):
        response.headers.append(("Connection", "close"))
