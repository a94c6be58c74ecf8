"""How an answer goes over the wire, and how the faults in that look."""

import socket
import struct
import time

from OpenSSL import SSL

ENDLESS_LENGTH = 1 << 40
LINGER_SECONDS = 5


class Closed(Exception):
    """The connection has been ended; there is nothing more to do on it."""


class Wire:
    """The sending side of one connection, and the ways to end it."""

    def __init__(self, connection, plain):
        self.connection, self.plain = connection, plain

    def send(self, data):
        if data:
            self.connection.sendall(data)

    def close(self, how="closed"):
        """closed: a closing alert, then FIN. abrupt: FIN without the alert. reset: RST."""
        if how == "reset":
            self.plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif how == "closed":
            self.end_orderly()
        self.plain.close()
        raise Closed

    def end_orderly(self):
        """Takes what the client still sends, its own alert for one: closing a socket before that would reset it."""
        try:
            self.connection.shutdown()
            self.plain.shutdown(socket.SHUT_WR)
            self.plain.settimeout(LINGER_SECONDS)
            while self.plain.recv(16384):
                pass
        except (SSL.Error, OSError):
            pass

    def wait_for_client(self):
        """Until the client goes away."""
        try:
            while self.connection.recv(16384):
                pass
        except (SSL.Error, OSError):
            pass
        self.close()

    def close_at_next(self):
        """When the next request comes, which meets the end."""
        try:
            self.connection.recv(1)
        except (SSL.Error, OSError):
            pass
        self.close()

    def half_close(self):
        self.plain.shutdown(socket.SHUT_WR)
        self.wait_for_client()


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def endless(wire, response, faults):
    if faults.has("headers-endless"):
        wire.send(response.head().removesuffix(b"\r\n"))
        while True:
            wire.send(b"X-Filler: " + b"filler " * 500 + b"\r\n")
    line = b"QUJD" * 16 + b"\n"
    if faults.get("endless")["framing"]:
        wire.send(response.head(ENDLESS_LENGTH) + response.body)
        while True:
            wire.send(line * 100)
    wire.send(response.head(extra=[("Transfer-Encoding", "chunked")]))
    wire.send(chunk(response.body))
    while True:
        wire.send(chunk(line * 100))


def deliver(wire, response, faults):
    """Sends the answer. Ends with Closed where a fault has closed the connection."""
    if faults.has("headers-endless") or faults.has("endless"):
        endless(wire, response, faults)
    head, body = response.head(), response.body
    if faults.has("chunked"):
        head = response.head(extra=[("Transfer-Encoding", "chunked")])
        body = chunk(body[:100]) + chunk(body[100:]) + b"0\r\n\r\n" if len(body) > 100 else chunk(body) + b"0\r\n\r\n"
    elif faults.has("no-length"):
        length = f"Content-Length: {len(body)}".encode()
        head = head.replace(length, b"Connection: close")
    if (cut := faults.get("cut")) is not None:
        wire.send((head + body)[: int(cut["octets"])])
        wire.close(cut["ending"] or "closed")
    if (drip := faults.get("drip")) is not None:
        for octet in head + body:
            wire.send(bytes([octet]))
            time.sleep(int(drip["milliseconds"] or 1000) / 1000)
    elif (slow := faults.get("slow-body")) is not None:
        wire.send(head)
        time.sleep(int(slow["milliseconds"] or 45) / 1000)
        wire.send(body)
    elif faults.has("hang-body"):
        wire.send(head)
        wire.wait_for_client()
    else:
        wire.send(head + body)
    if faults.has("no-length"):
        wire.close()
    if faults.has("close-after-answer"):
        wire.close_at_next()
