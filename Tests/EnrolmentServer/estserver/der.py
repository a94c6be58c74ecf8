"""The few DER structures that python3-cryptography has no builder for."""


def tlv(tag, content):
    length = len(content)
    if length < 0x80:
        header = bytes([tag, length])
    else:
        octets = length.to_bytes((length.bit_length() + 7) // 8, "big")
        header = bytes([tag, 0x80 | len(octets)]) + octets
    return header + content


def sequence(*members):
    return tlv(0x30, b"".join(members))


def set_of(*members):
    return tlv(0x31, b"".join(sorted(members)))


def integer(number):
    return tlv(0x02, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def oid(dotted):
    arcs = [int(arc) for arc in dotted.split(".")]
    content = b""
    for arc in [arcs[0] * 40 + arcs[1], *arcs[2:]]:
        groups = [arc & 0x7F]
        while arc := arc >> 7:
            groups.append(arc & 0x7F | 0x80)
        content += bytes(reversed(groups))
    return tlv(0x06, content)


def certs_only(certificates):
    """A CMS bag (RFC 5272, section 4.1) with the certificates exactly in this order.

    DER would sort them; nobody does, and a test wants to choose the order.
    """
    signed_data = sequence(
        integer(1),
        set_of(),
        sequence(oid("1.2.840.113549.1.7.1")),
        tlv(0xA0, b"".join(certificates)),
        set_of(),
    )
    return sequence(oid("1.2.840.113549.1.7.2"), tlv(0xA0, signed_data))
