"""Points of BLS12-381: how they are read, written and made from bytes.

blst does what needs a library: multiples, sums, the subgroup check, pairings. It reads and writes compressed points
only, so the other coordinate is computed here with plain integers. Their time depends on their values, which are public
here: encodings and identities. For tests and demonstrations.
"""

import hashlib

from pyblst import BlstP1Element, BlstP2Element

P = 0x1A0111EA397FE69A4B1BA7B6434BACD764774B84F38512BF6730D2A0F6B0F6241EABFFFEB153FFFFB9FEFFFFFFFFAAAB
R = 0x73EDA753299D7D483339D80809A1D80553BDA402FFFE5BFEFFFFFFFF00000001
COFACTOR = 0x396C8C005555E1568C00AAAB0000AAAB
WIDTH = 48
G1_LENGTH = 1 + 2 * WIDTH
G2_LENGTH = 4 * WIDTH
COMPRESSED, INFINITY, LARGER = 0x80, 0x40, 0x20

G2_GENERATOR = BlstP2Element.uncompress(bytes.fromhex(
    "93e02b6052719f607dacd3a088274f65596bd0d09920b61ab5da61bbdc7f5049334cf11213945d57e5ac7d055d042b7e"
    "024aa2b2f08f0a91260805272dc51051c6e47ad4fa403b02b4510b647ae3d1770bac0326a805bbefd48056c8c121bdb8"))


class Malformed(ValueError):
    """Bytes that are no point of the group, or JSON that is no signature."""


def read_g1(data: bytes) -> BlstP1Element:
    """The point of `04‖x‖y`; Malformed unless it is on the curve, in the subgroup and not at infinity."""
    if len(data) != G1_LENGTH or data[0] != 4:
        raise Malformed("a point of G1 has 97 bytes and begins with 04")
    x, y = _coordinates(data[1:])
    if y * y % P != (x ** 3 + 4) % P:
        raise Malformed("a point of G1 is not on the curve")
    return _uncompress(BlstP1Element, _flagged(data[1:1 + WIDTH], y > P - y))


def write_g1(point: BlstP1Element) -> bytes:
    data = point.compress()
    if data[0] & INFINITY:
        raise Malformed("the point at infinity has no encoding")
    x, larger = _unflagged(data)
    y = _root(x ** 3 + 4)
    if (y > P - y) != larger:
        y = P - y
    return b"\x04" + _bytes(x, y)


def read_g2(data: bytes) -> BlstP2Element:
    """The point of `xa‖xb‖ya‖yb`, x being xa + i·xb; Malformed as for `read_g1`."""
    if len(data) != G2_LENGTH:
        raise Malformed("a point of G2 has 192 bytes")
    xa, xb, ya, yb = _coordinates(data)
    if ((ya * ya - yb * yb) % P, 2 * ya * yb % P) != _right_side(xa, xb):
        raise Malformed("a point of G2 is not on the curve")
    # The compressed form has xb first.
    return _uncompress(BlstP2Element, _flagged(data[WIDTH:2 * WIDTH] + data[:WIDTH], _is_larger(ya, yb)))


def write_g2(point: BlstP2Element) -> bytes:
    data = point.compress()
    if data[0] & INFINITY:
        raise Malformed("the point at infinity has no encoding")
    xb, larger = _unflagged(data[:WIDTH])
    xa = int.from_bytes(data[WIDTH:], "big")
    ya, yb = _root_of_pair(*_right_side(xa, xb))
    if _is_larger(ya, yb) != larger:
        ya, yb = -ya % P, -yb % P
    return _bytes(xa, xb, ya, yb)


def map_to_g1(data: bytes) -> BlstP1Element:
    """Map of the page: the first x from SHA-256(data) upwards with a point, its even y, times the cofactor."""
    x = int.from_bytes(hashlib.sha256(data).digest(), "big") % P
    while (y := _root(x ** 3 + 4)) is None:
        x = (x + 1) % P
    if y % 2:
        y = P - y
    x, y = _multiply((x, y), COFACTOR)
    return read_g1(b"\x04" + _bytes(x, y))


def is_infinity(point) -> bool:
    return bool(point.compress()[0] & INFINITY)


def _coordinates(data):
    numbers = [int.from_bytes(data[i:i + WIDTH], "big") for i in range(0, len(data), WIDTH)]
    if any(number >= P for number in numbers):
        raise Malformed("a coordinate is not below p")
    return numbers


def _bytes(*numbers):
    return b"".join(number.to_bytes(WIDTH, "big") for number in numbers)


def _flagged(x, larger):
    return bytes([x[0] | COMPRESSED | (LARGER if larger else 0)]) + x[1:]


def _unflagged(data):
    return int.from_bytes(bytes([data[0] & 0x1F]) + data[1:], "big"), bool(data[0] & LARGER)


def _uncompress(kind, data):
    try:
        return kind.uncompress(data)
    except ValueError:
        raise Malformed("a point is outside the subgroup") from None


def _right_side(a, b):
    """x³ + 4 + 4i for x = a + i·b."""
    return (a ** 3 - 3 * a * b * b + 4) % P, (3 * a * a * b - b ** 3 + 4) % P


def _is_larger(a, b):
    return b > P - b if b else a > P - a


def _root(square):
    """A square root mod p, or None. p is 3 mod 4."""
    root = pow(square, (P + 1) // 4, P)
    return root if root * root % P == square % P else None


def _root_of_pair(a, b):
    """(c, d) with (c + i·d)² = a + i·b, which must have one."""
    if b == 0:
        root = _root(a)
        return (root, 0) if root is not None else (0, _root(-a))
    norm = _root(a * a + b * b)
    half = pow(2, -1, P)
    c = _root((a + norm) * half)
    if c is None:
        c = _root((a - norm) * half)
    return c, b * pow(2 * c, -1, P) % P


def _multiply(point, scalar):
    """A multiple of a point of the curve that need not be in the subgroup, which blst does not read."""
    result = None
    for bit in bin(scalar)[2:]:
        result = _add(result, result)
        if bit == "1":
            result = _add(result, point)
    if result is None:
        raise Malformed("a multiple is at infinity")
    return result


def _add(one, other):
    if one is None or other is None:
        return one or other
    if one[0] == other[0]:
        if (one[1] + other[1]) % P == 0:
            return None
        slope = 3 * one[0] * one[0] * pow(2 * one[1], -1, P)
    else:
        slope = (other[1] - one[1]) * pow(other[0] - one[0], -1, P)
    x = (slope * slope - one[0] - other[0]) % P
    return x, (slope * (one[0] - x) - one[1]) % P
