"""The other side of PairingTests: makes shares, verifies signatures, and turns bits of them. JSON lines, as the tests ask."""
import json
import random
import secrets
import sys

from authority import curve, mpin

S1, S2 = (secrets.randbelow(curve.R - 1) + 1 for _ in range(2))
W = curve.G2_GENERATOR.scalar_mul((S1 + S2) % curve.R)


def verdict(signature, timestamp):
    try:
        return mpin.Signature.read(signature, timestamp).verify(W)
    except curve.Malformed:
        return None


def turned(signature, timestamp, field):
    if field == "timestamp":
        return signature, timestamp ^ 1 << random.randrange(32)
    data = bytearray.fromhex(signature[field])
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return signature | {field: data.hex()}, timestamp


for line in sys.stdin:
    question = json.loads(line)
    if "shares" in question:
        identity = bytes.fromhex(question["shares"])
        a = curve.map_to_g1(identity)
        answer = {"shares": [curve.write_g1(a.scalar_mul(s)).hex() for s in (S1, S2)]}
    else:
        signature, timestamp = question["signature"], question["timestamp"]
        answer = {
            "isValid": verdict(signature, timestamp) is True,
            "turned": [field for field in ("hash", "timestamp", "mpinId", "publicKey", "u", "v")
                       if verdict(*turned(signature, timestamp, field))],
        }
    print(json.dumps(answer), flush=True)
