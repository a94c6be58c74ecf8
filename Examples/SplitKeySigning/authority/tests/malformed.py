"""Bytes that are no points of the groups, by what is wrong with them."""

from authority import curve

P = curve.P


def number(*values):
    return b"".join(value.to_bytes(48, "big") for value in values)


def g1():
    good = curve.write_g1(curve.map_to_g1(b"good"))
    x, y = int.from_bytes(good[1:49], "big"), int.from_bytes(good[49:], "big")
    return {
        "empty": b"",
        "one byte less": good[:-1],
        "one byte more": good + b"\0",
        "twice": good + good,
        "compressed": curve.map_to_g1(b"good").compress(),
        "without 04": good[1:],
        "another first byte": b"\x02" + good[1:],
        "first byte of infinity": b"\x40" + good[1:],
        "x not below p": b"\x04" + number(x + P, y),
        "y not below p": b"\x04" + number(x, y + P),
        "x is p": b"\x04" + number(P, 2),
        "all ones": b"\x04" + b"\xff" * 96,
        "flag of the compressed form in x": b"\x04" + bytes([good[1] | 0x80]) + good[2:],
        "off the curve": b"\x04" + number(x, y ^ 1),
        "x and y exchanged": b"\x04" + number(y, x),
        "infinity as zeros": b"\x04" + bytes(96),
        "infinity in one byte": b"\0",
        "infinity, compressed": b"\xc0" + bytes(47),
        "infinity, as long as a point": b"\x40" + bytes(96),
        "outside the subgroup, of order 3": b"\x04" + number(0, 2),
        "outside the subgroup": b"\x04" + number(*outside_g1()),
    }


def g2():
    good = curve.write_g2(curve.G2_GENERATOR.scalar_mul(7))
    xa, xb, ya, yb = (int.from_bytes(good[i:i + 48], "big") for i in range(0, 192, 48))
    return {
        "empty": b"",
        "one byte less": good[:-1],
        "one byte more": good + b"\0",
        "04 before it": b"\x04" + good,
        "compressed": curve.G2_GENERATOR.compress(),
        "xa not below p": number(xa + P, xb, ya, yb),
        "xb not below p": number(xa, xb + P, ya, yb),
        "ya not below p": number(xa, xb, ya + P, yb),
        "yb not below p": number(xa, xb, ya, yb + P),
        "all ones": b"\xff" * 192,
        "flag of the compressed form in xb": good[:48] + bytes([good[48] | 0x80]) + good[49:],
        "off the curve": number(xa, xb, ya ^ 1, yb),
        "xb before xa": number(xb, xa, yb, ya),
        "half of y negative": number(xa, xb, P - ya, yb),
        "infinity as zeros": bytes(192),
        "infinity, compressed": b"\xc0" + bytes(95),
        "infinity, as long as a point": b"\xc0" + bytes(191),
        "outside the subgroup": number(*outside_g2()),
    }


def outside_g1():
    """A point of the curve whose order is not r: the first after x = 1 is taken, the subgroup having 2⁻¹²⁶ of them."""
    x = 1
    while (y := curve._root(x ** 3 + 4)) is None:
        x += 1
    return x, y


def outside_g2():
    xa = 1
    while True:
        a, b = curve._right_side(xa, 1)
        if curve._root(a * a + b * b) is not None:
            try:
                ya, yb = curve._root_of_pair(a, b)
                if ((ya * ya - yb * yb) % P, 2 * ya * yb % P) == (a, b):
                    return xa, 1, ya, yb
            except TypeError:
                pass
        xa += 1
