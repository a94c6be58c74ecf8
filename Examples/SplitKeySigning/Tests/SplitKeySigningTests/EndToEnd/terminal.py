"""Runs a program at a terminal of its own, and types: `terminal.py '[["prompt", "answer"], …]' PROGRAM ARGUMENT…`.

An answer is typed after its prompt, since a question without echo drops what was typed before it. Writes what was on the terminal.
"""
import json
import os
import pty
import sys

answers = json.loads(sys.argv[1])
child, terminal = pty.fork()
if child == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
screen, seen = b"", 0
while True:
    try:
        data = os.read(terminal, 65536)
    except OSError:
        break
    if not data:
        break
    screen += data
    while answers and (found := screen.find(answers[0][0].encode(), seen)) >= 0:
        prompt, answer = answers.pop(0)
        seen = found + len(prompt.encode())
        os.write(terminal, answer.encode() + b"\n")
sys.stdout.buffer.write(screen)
sys.stdout.flush()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
