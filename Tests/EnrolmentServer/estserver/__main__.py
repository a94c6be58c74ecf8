"""Serves until SIGTERM or the end of standard input, so that nothing outlives the test that started it.

SIGUSR1 rolls the root over.
"""

import json
import os
import signal
import sys

from .options import parser
from .server import Server


def main():
    options = parser().parse_args()
    # Threads of Swift's runtime block all signals, and what they start inherits that.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    server = Server(options)
    signal.signal(signal.SIGUSR1, lambda *_: server.roll_over())
    print(json.dumps({"port": server.listen(), "directory": str(server.directory.resolve())}), flush=True)
    while os.read(sys.stdin.fileno(), 4096):
        pass
    # Threads may be waiting for clients; what they have logged is written.
    os._exit(0)


if __name__ == "__main__":
    main()
