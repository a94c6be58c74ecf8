"""Faults by name. The label of a path says which ones a request meets: /.well-known/est/fault-NAME+NAME/simpleenroll

A name may begin with the operation it is for (cacerts-, csrattrs-, token-), else it is for enrolment, and it may end
with *N for the first N requests only.
"""

import base64
import re
import threading

from .messages import HTTPError

ENROLMENT = {"simpleenroll", "simplereenroll", "serverkeygen"}
# Each name, and what may follow it.
BEFORE_ISSUING = {
    "status": r"-(?P<status>[1-9]\d\d)(-retry-(?P<retry>\d+))?",
    "redirect": r"-(?P<status>30[12378])-(?P<where>same|other|loop|http)",
    "hang": "",
    "half-close": "",
    "close-after-request": "",
}
ISSUING = {
    "other-key": "",
    "untrusted": "",
    "expired": "",
}
BODY = {
    "unwrapped": "",
    "wrong-type": "",
}
TOKEN = {
    "error": r"-(?P<error>[a-z_]+)(-(?P<status>4\d\d))?",
    "refresh-error": r"-(?P<error>[a-z_]+)(-(?P<status>4\d\d))?",
    "loud-error": "",
    "echo": r"-(?P<part>header|body)",
    "type": r"-(?P<type>[A-Za-z0-9-]+|absent)",
    "expires": r"-(?P<value>absent|text|word|null|list|-?\d+(\.\d+)?|huge)",
    "split-token": "",
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
    "chunked": "",
    "endless": r"(-(?P<framing>length))?",
    "headers-endless": "",
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
        operation = parts["operation"] or "enrolment"
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
            name: (arguments, times) for name, arguments, wanted, times in parse(label) if wanted == group
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


def encoded(der, faults):
    """The base64 of a body, in lines or in one."""
    if faults.has("unwrapped"):
        return base64.b64encode(der)
    return base64.encodebytes(der)
