"""The other sides of a tunnel: a program without TLS behind it, and clients before it.

    tunnel.py target ADDRESS WHAT     echo, late (all of it after the end), first (half-closes, then counts), header, flood
    tunnel.py clients PORT CA         commands on stdin: open COUNT CERTIFICATE, ping
    tunnel.py half PORT CA CERTIFICATE first|late
    tunnel.py stuck PORT CA CERTIFICATE
"""
import asyncio
import socket
import ssl
import sys


def say(*words):
    print(*words, flush=True)


def listener(address):
    if address.startswith("/"):
        server = socket.socket(socket.AF_UNIX)
        server.bind(address)
    else:
        server = socket.create_server(("127.0.0.1", 0))
    server.listen(1024)
    return server


async def target(address, what):
    async def take(reader, writer):
        try:
            if what == "echo":
                while data := await reader.read(1 << 16):
                    writer.write(data)
                    await writer.drain()
            elif what == "late":
                writer.write(await reader.read(-1))
            elif what == "first":
                writer.write(b"hello")
                writer.write_eof()
                say("received", len(await reader.read(-1)))
            elif what == "header":
                data = await reader.read(1 << 16)
                say(data.hex())
            await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    server = listener(address)
    name = server.getsockname()
    if what == "flood":
        say("up", name[1])
        connection, _ = await asyncio.get_running_loop().run_in_executor(None, server.accept)
        connection.settimeout(2)
        count = 0
        try:
            while count < 1 << 28:
                count += connection.send(bytes(1 << 16))
        except TimeoutError:
            pass
        say(count)
        return
    make = asyncio.start_unix_server if address.startswith("/") else asyncio.start_server
    async with await make(take, sock=server) as server:
        say("up", name if address.startswith("/") else name[1])
        await server.serve_forever()


async def clients(port, authorities):
    open_ones = []

    async def connect(certificate):
        context = ssl.create_default_context(cafile=authorities)
        context.load_cert_chain(certificate)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
        serial = writer.get_extra_info("peercert")["serialNumber"].lstrip("0")
        await ping(reader, writer)
        open_ones.append((reader, writer))
        return serial

    async def ping(reader, writer):
        writer.write(b"ping\n")
        await writer.drain()
        if await asyncio.wait_for(reader.readexactly(5), 60) != b"ping\n":
            raise ConnectionError

    async def count(calls):
        results = await asyncio.gather(*calls, return_exceptions=True)
        return [result for result in results if not isinstance(result, Exception)]

    loop = asyncio.get_running_loop()
    say("up")
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        words = line.split()
        if words[0] == "open":
            found = await count([connect(words[2]) for _ in range(int(words[1]))])
            say(len(found), *sorted(set(found)))
        elif words[0] == "ping":
            say(len(await count([ping(*one) for one in open_ones])))


def connection(port, authorities, certificate):
    # Python's own module cannot go on after one side's close_notify.
    from OpenSSL import SSL

    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.load_verify_locations(authorities)
    context.use_certificate_chain_file(certificate)
    context.use_privatekey_file(certificate)
    one = SSL.Connection(context, socket.create_connection(("127.0.0.1", port)))
    one.set_tlsext_host_name(b"localhost")
    one.set_connect_state()
    one.do_handshake()
    return one


def read_all(one):
    from OpenSSL import SSL

    count = 0
    try:
        while True:
            count += len(one.recv(1 << 16))
    except SSL.ZeroReturnError:
        return count


def half(port, authorities, certificate, order):
    one = connection(port, authorities, certificate)
    if order == "first":
        say(read_all(one))
    one.sendall(bytes(5_000_000))
    one.shutdown()
    if order == "late":
        say(read_all(one))
    else:
        # Until the tunnel has closed the connection.
        one.sock_shutdown(socket.SHUT_WR)
        say("done")


def stuck(port, authorities, certificate):
    one = connection(port, authorities, certificate)
    one.sendall(b"x")
    say("up")
    sys.stdin.read()


what, arguments = sys.argv[1], sys.argv[2:]
if what == "target":
    asyncio.run(target(*arguments))
elif what == "clients":
    asyncio.run(clients(int(arguments[0]), arguments[1]))
elif what == "half":
    half(int(arguments[0]), *arguments[1:])
else:
    stuck(int(arguments[0]), *arguments[1:])
