"""HTTP/1.1 messages, read and written by hand: a library would not let the faults through."""

import re
from dataclasses import dataclass, field

HEADER_LIMIT = 64 * 1024
BODY_LIMIT = 1024 * 1024
REASONS = {
    100: "Continue", 200: "OK", 202: "Accepted", 204: "No Content", 301: "Moved Permanently", 302: "Found",
    303: "See Other", 307: "Temporary Redirect", 308: "Permanent Redirect", 400: "Bad Request", 401: "Unauthorized",
    403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 409: "Conflict", 413: "Content Too Large",
    415: "Unsupported Media Type", 417: "Expectation Failed", 429: "Too Many Requests", 500: "Internal Server Error",
    501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout",
}  # fmt: skip
SINGLE = {"host", "content-length", "content-type", "transfer-encoding", "authorization"}
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class HTTPError(Exception):
    """Ends a request with this status and a text that says why."""

    def __init__(self, status, text, headers=()):
        super().__init__(text)
        self.status, self.text, self.headers = status, text, list(headers)

    @property
    def response(self):
        return Response(self.status, [("Content-Type", "text/plain"), *self.headers], (self.text + "\n").encode())


@dataclass
class Request:
    method: str
    target: str
    headers: dict = field(default_factory=dict)
    body: bytes = b""

    @property
    def keep_alive(self):
        return "close" not in self.headers.get("connection", "").lower()

    @property
    def content_type(self):
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


@dataclass
class Response:
    status: int
    headers: list = field(default_factory=list)
    body: bytes = b""

    def head(self, length=None, extra=()):
        """The status line and headers; `length` as it is to be declared, None for the body's own."""
        lines = [f"HTTP/1.1 {self.status} {REASONS.get(self.status, 'Unknown')}"]
        headers = [*self.headers, *extra]
        if self.status != 204 and not any(key.lower() == "transfer-encoding" for key, _ in headers):
            headers.append(("Content-Length", len(self.body) if length is None else length))
        lines += [f"{key}: {value}" for key, value in headers]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


class Reader:
    """Requests of one connection. Ends with EOFError where the client ended, with HTTPError on what is no HTTP."""

    def __init__(self, receive, send):
        self.receive, self.send, self.buffer = receive, send, b""

    def fill(self):
        data = self.receive(16384)
        if not data:
            raise EOFError
        self.buffer += data

    def line(self):
        while b"\n" not in self.buffer:
            if len(self.buffer) > HEADER_LIMIT:
                raise HTTPError(400, "The header is too long.")
            self.fill()
        line, _, self.buffer = self.buffer.partition(b"\n")
        if not line.endswith(b"\r"):
            raise HTTPError(400, "A line does not end with CR LF.")
        return line[:-1].decode("latin-1")

    def octets(self, count):
        while len(self.buffer) < count:
            self.fill()
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data

    def request(self):
        parts = self.line().split(" ")
        if len(parts) != 3 or parts[2] != "HTTP/1.1" or not TOKEN.fullmatch(parts[0]) or not parts[1].startswith("/"):
            raise HTTPError(400, "The request line is not that of HTTP/1.1.")
        request = Request(parts[0], parts[1])
        size = 0
        while line := self.line():
            size += len(line)
            key, colon, value = line.partition(":")
            if not colon or not TOKEN.fullmatch(key) or size > HEADER_LIMIT:
                raise HTTPError(400, "A header field is malformed or there are too many.")
            key, value = key.lower(), value.strip()
            if key in request.headers and key in SINGLE:
                raise HTTPError(400, f"The header field {key} is there twice.")
            request.headers[key] = f"{request.headers[key]}, {value}" if key in request.headers else value
        if "host" not in request.headers:
            raise HTTPError(400, "The header field Host is missing.")
        self.read_body(request)
        return request

    def read_body(self, request):
        length, coding = request.headers.get("content-length"), request.headers.get("transfer-encoding")
        if length is not None and (coding is not None or not re.fullmatch("[0-9]{1,12}", length)):
            raise HTTPError(400, "The body's length is ambiguous.")
        if coding is not None and coding.lower() != "chunked":
            raise HTTPError(501, "The only transfer coding here is chunked.")
        if int(length or 0) > BODY_LIMIT:
            raise HTTPError(413, "The body is too long.")
        if request.headers.get("expect", "").lower() == "100-continue":
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.body = self.octets(int(length or 0)) if coding is None else self.chunks()

    def chunks(self):
        body = b""
        while True:
            size = self.line().partition(";")[0].strip()
            if not re.fullmatch("[0-9A-Fa-f]{1,8}", size) or len(body) + int(size, 16) > BODY_LIMIT:
                raise HTTPError(400, "A chunk's size cannot be read or is too large.")
            if int(size, 16) == 0:
                break
            body += self.octets(int(size, 16))
            if self.line():
                raise HTTPError(400, "A chunk is longer than its size says.")
        while self.line():
            pass
        return body
