"""One connection from its handshake to its end, on a thread of its own."""

import contextlib
import itertools
import re
import socket

from OpenSSL import SSL

from . import ca, est, issuing, tls
from .delivery import Closed, Wire, deliver
from .faults import DELIVERY, Faults
from .messages import HTTPError, Reader

NUMBERS = itertools.count(1)
TOKEN_PATH = re.compile(r"/token(?:/([^/?]+))?")


def serve(server, plain):
    number = next(NUMBERS)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection = SSL.Connection(server.context, plain)
    connection.set_accept_state()
    try:
        connection.do_handshake()
    except (SSL.Error, OSError) as error:
        server.log({"event": "handshake-failed", "connection": number, "error": repr(error)})
        plain.close()
        return
    if server.options.refuse_clients == "close-notify" and tls.client_certificate(connection):
        server.log({"event": "handshake-failed", "connection": number, "error": "refused"})
        with contextlib.suppress(Closed):
            Wire(connection, plain).close()
        return
    Conversation(server, connection, plain, number).run()


class Conversation:
    def __init__(self, server, connection, plain, number):
        self.server, self.connection, self.number = server, connection, number
        self.wire = Wire(connection, plain)
        self.reader = Reader(connection.recv, self.wire.send)

    def run(self):
        try:
            for count in itertools.count(1):
                if not self.exchange(count):
                    self.wire.close()
        except (Closed, EOFError):
            pass
        except (SSL.Error, OSError):
            # The client is gone; what it asked for is in the log.
            pass
        finally:
            self.wire.plain.close()

    def exchange(self, count):
        """One request and its answer. Returns whether another one may follow."""
        record = self.new_record(count)
        faults = Faults("", "", self.server.counter)
        keep_alive = False
        try:
            request = self.reader.request()
            keep_alive = request.keep_alive
            record |= {"method": request.method, "path": request.target, "host": request.headers["host"]}
            record["authorization"] = request.headers.get("authorization", "").partition(" ")[0] or None
            operation, label = self.route(request, record)
            faults = Faults(label, operation, self.server.counter)
            response = self.respond(request, operation, faults, record)
        except issuing.Interruption as interruption:
            self.finish(record, None, faults)
            self.interrupt(str(interruption))
        except HTTPError as error:
            record["error"] = error.text
            response = error.response
            if record.get("refused"):
                # Faults are for those who may enrol: a client has to get as far as sending what it would lose.
                faults = faults.only("close-after-answer")
        except (EOFError, SSL.Error, OSError):
            raise
        except Exception as error:
            record["error"] = f"internal: {error!r}"
            response = HTTPError(500, "The server has a defect.").response
        if ("Connection", "close") not in response.headers:
            if not keep_alive:
                response.headers.append(("Connection", "close"))
            elif not faults.has("close-after-answer"):
                # As nginx, Apache and Node say it, though HTTP/1.1 means it anyway.
                response.headers.append(("Connection", "keep-alive"))
        self.finish(record, response.status, faults)
        deliver(self.wire, response, faults)
        return ("Connection", "close") not in response.headers

    def route(self, request, record):
        """(operation, label)"""
        if match := est.PATH.fullmatch(request.target):
            operation, label = match[2], match[1] or ""
        elif match := TOKEN_PATH.fullmatch(request.target):
            operation, label = "token", match[1] or ""
        elif request.target.startswith("/authorize?"):
            operation, label = "authorize", ""
        else:
            raise HTTPError(404, "There is nothing here.")
        record |= {"operation": operation, "label": label}
        if not label and self.server.options.fault:
            label = "fault-" + self.server.options.fault
        return operation, label

    def respond(self, request, operation, faults, record):
        if operation == "token":
            issuing.interrupt(request, faults)
            response = self.server.tokens.respond(request, faults, record)
            if faults.has("wrong-type"):
                response.headers = [("Content-Type", "text/html")]
            return response
        if operation == "authorize":
            return self.server.tokens.authorize(request)
        return self.server.est.respond(self.connection, request, operation, faults, record)

    def interrupt(self, name):
        if name == "hang":
            self.wire.wait_for_client()
        if name == "half-close":
            self.wire.half_close()
        self.wire.close()

    def new_record(self, count):
        certificate = tls.client_certificate(self.connection)
        shown = certificate and {
            "subject": certificate.subject.rfc4514_string(),
            "serial": ca.serial_text(certificate),
        }
        return {
            "event": "request", "connection": self.number, "request": count, "method": None, "path": None,
            "tls": self.connection.get_protocol_version_name(), "user": None, "client_certificate": shown,
            "csr_key_sha256": None, "binding": None, "status": None, "serial": None,
        }  # fmt: skip

    def finish(self, record, status, faults):
        """Logs the request before anything of the answer is sent, so that whoever has the answer finds the line."""
        if status is not None:
            for name in DELIVERY:
                faults.get(name)
        record["status"], record["faults"] = status, faults.played
        self.server.log(record)
