"""Processes at the other end of a socket, which change as processes can.

    caller.py connect PATH        connects, and runs the statements on stdin
    caller.py successor PID USER  is the process PID when that is free, of a user with the groups 12346, 7 and 8
    caller.py tracer PID          stops a process, and traces it
"""
import ctypes
import os
import socket
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)


def say(word):
    print(word, flush=True)


def connect(path):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    connection.set_inheritable(True)

    def hand_over(user):
        """Passes the connection to a process of another user, which holds it."""
        here, there = socket.socketpair()
        if os.fork():
            socket.send_fds(here, [b"x"], [connection.fileno()])
            here.recv(1)
            return
        connection.close()
        os.setgroups([])
        os.setuid(user)
        (received,) = socket.recv_fds(there, 1, 1)[1]
        there.send(b"x")
        os.read(received, 1)
        os._exit(0)

    say("up")
    while line := sys.stdin.readline():
        exec(line, {"os": os, "libc": libc, "hand_over": hand_over})
        say("done")


def become(number, user):
    numbers = (ctypes.c_int * 1)(number)
    clone3, sigchld = 435, 17
    arguments = struct.pack("10Q", 0, 0, 0, 0, sigchld, 0, 0, 0, ctypes.addressof(numbers), 1)
    # The number is not free at once.
    while (child := libc.syscall(clone3, arguments, len(arguments))) < 0:
        if ctypes.get_errno() != 17:
            raise OSError(ctypes.get_errno(), "clone3")
    if child:
        return os.waitpid(child, 0)
    os.setgroups([7, 8])
    os.setgid(12346)
    os.setuid(user)
    say("up")
    os.read(0, 1)
    os._exit(0)


def trace(number):
    attach, any_child = 16, 0x40000000
    if libc.ptrace(attach, number, None, None) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    os.waitpid(number, any_child)
    say("up")
    sys.stdin.read()


what, arguments = sys.argv[1], sys.argv[2:]
if what == "connect":
    connect(*arguments)
elif what == "successor":
    become(*map(int, arguments))
else:
    trace(int(arguments[0]))
