"""Between libtss2 and a software TPM, whose answers it damages: faulty-tpm.py TCTI SOCKET garbage|half|signature"""
import socket
import struct
import sys
import threading

tpm, path, fault = sys.argv[1].removeprefix("swtpm:path="), sys.argv[2], sys.argv[3]
SIGN = 0x15D  # TPM2_Sign


def listener(name):
    server = socket.socket(socket.AF_UNIX)
    server.bind(name)
    server.listen()
    return server


def peer(name):
    client = socket.socket(socket.AF_UNIX)
    client.connect(name)
    return client


def message(stream):
    head = stream.read(10)
    return head + stream.read(struct.unpack(">I", head[2:6])[0] - 10) if len(head) == 10 else b""


def damaged(command, answer):
    if fault == "garbage":
        return b"HTTP/1.1 400 Bad Request\r\n\r\n"
    if fault == "half":
        return answer[: len(answer) // 2]
    is_signature = struct.unpack(">I", command[6:10])[0] == SIGN
    # An answer with sessions ends with five bytes about the authorisation.
    return answer[:-6] + bytes([answer[-6] ^ 1]) + answer[-5:] if is_signature else answer


def commands():
    server = listener(path)
    print("ready", flush=True)
    while True:
        client, _ = server.accept()
        real, stream = peer(tpm), client.makefile("rb")
        answers = real.makefile("rb")
        while command := message(stream):
            real.sendall(command)
            client.sendall(damaged(command, message(answers)))
        answers.close()
        real.close()


def control():
    server = listener(path + ".ctrl")
    while True:
        client, _ = server.accept()
        real = peer(tpm + ".ctrl")
        while command := client.recv(4096):
            real.sendall(command)
            client.sendall(real.recv(4096))
        real.close()


threading.Thread(target=control, daemon=True).start()
commands()
