"""A host for the tests against the reference authority, by its own tests' signer.

    python3 sign.py enrol URL CA CODE FILE PIN     enrols both keys, writes the signing key to FILE, prints a session
    python3 sign.py sign FILE HASH TIMESTAMP PIN   prints a signature object
"""

import json
import sys
import time

from authority import curve
from authority.tests.signer import Host, Key


def main(command, *arguments):
    if command == "enrol":
        url, ca, code, path, pin = arguments
        host, now = Host(url, ca), int(time.time())
        login = host.enrol(code, 1111, now)
        status, answer = host.login(login, 1111, now)
        assert status == 200, answer
        key = host.enrol(answer["session"], int(pin), now)
        with open(path, "w") as file:
            json.dump([key.mpin_id.hex(), key.public_key.hex(), curve.write_g1(key.token).hex(), key.dtas], file)
        status, answer = host.login(login, 1111, now)
        print(json.dumps(answer))
    else:
        path, hash, timestamp, pin = arguments
        with open(path) as file:
            mpin_id, public_key, token, dtas = json.load(file)
        key = Key(bytes.fromhex(mpin_id), bytes.fromhex(public_key), curve.read_g1(bytes.fromhex(token)), dtas)
        print(json.dumps(key.sign(bytes.fromhex(hash), int(timestamp), int(pin))["signature"]))


main(*sys.argv[1:])
