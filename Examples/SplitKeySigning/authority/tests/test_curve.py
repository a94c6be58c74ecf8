import hashlib
import json
import os
import secrets
import subprocess
import sys
import unittest

from authority import curve, mpin

from . import malformed
from .signer import new_pair, token_of
from .support import FOLDER, vectors


class Vectors(unittest.TestCase):
    def test_shares_tokens_u_and_v_are_equal_100_are_accepted_and_50_refused(self):
        verdicts = []
        for vector in vectors():
            data = lambda name: bytes.fromhex(vector[name])
            number = lambda name: int(vector[name], 16)
            with self.subTest(vector["TEST"]):
                a = curve.map_to_g1(data("MPINId"))
                for n in "12":
                    self.assertEqual(curve.write_g1(a.scalar_mul(number("MS" + n))), data("CS" + n))
                    self.assertEqual(curve.write_g2(curve.G2_GENERATOR.scalar_mul(number("MS" + n))), data("SS" + n))
                verifier_key = curve.read_g2(data("SS1")) + curve.read_g2(data("SS2"))
                self.assertEqual(curve.write_g2(verifier_key), data("SS"))
                share = curve.read_g1(data("CS1")) + curve.read_g1(data("CS2"))
                self.assertEqual(curve.write_g1(share), data("CS"))
                token = share + -a.scalar_mul(vector["PIN1"])
                self.assertEqual(curve.write_g1(token), data("TOKEN"))
                u = a.scalar_mul(number("X"))
                self.assertEqual(curve.write_g1(u), data("U"))
                v = -(token + a.scalar_mul(vector["PIN2"])).scalar_mul((number("X") + number("Y")) % curve.R)
                self.assertEqual(curve.write_g1(v), data("V"))
                verdicts.append(mpin.is_valid(a, curve.G2_GENERATOR, u, v, number("Y"), verifier_key))
                self.assertEqual(verdicts[-1], vector["AuthResult"] == 0)
        self.assertEqual((verdicts.count(True), verdicts.count(False)), (100, 50))


class OtherLibrary(unittest.TestCase):
    """py_ecc makes the same points, and its pairing gives the same verdicts."""

    def setUp(self):
        try:
            from py_ecc import optimized_bls12_381
        except ImportError:
            self.skipTest("py_ecc is not installed: see requirements-tests.txt")
        self.ecc = optimized_bls12_381

    def g1(self, data):
        return tuple(self.ecc.FQ(int.from_bytes(part, "big")) for part in (data[1:49], data[49:])) + (self.ecc.FQ(1),)

    def g2(self, data):
        n = [int.from_bytes(data[i:i + 48], "big") for i in range(0, 192, 48)]
        return self.ecc.FQ2(n[:2]), self.ecc.FQ2(n[2:]), self.ecc.FQ2([1, 0])

    def test_multiples_of_the_generators_are_equal(self):
        for _ in range(20):
            scalar = secrets.randbelow(curve.R - 1) + 1
            multiple = curve.write_g2(curve.G2_GENERATOR.scalar_mul(scalar))
            self.assertTrue(self.ecc.eq(self.g2(multiple), self.ecc.multiply(self.ecc.G2, scalar)))
            a = curve.map_to_g1(secrets.token_bytes(100))
            expected = self.ecc.multiply(self.g1(curve.write_g1(a)), scalar)
            self.assertTrue(self.ecc.eq(self.g1(curve.write_g1(a.scalar_mul(scalar))), expected))

    def test_map_is_the_first_point_upwards_with_even_y_times_the_cofactor(self):
        for n in range(20):
            x = int.from_bytes(hashlib.sha256(bytes([n])).digest(), "big")
            while pow(x ** 3 + 4, (curve.P - 1) // 2, curve.P) != 1:
                x += 1
            y = pow(x ** 3 + 4, (curve.P + 1) // 4, curve.P)
            y = curve.P - y if y % 2 else y
            expected = self.ecc.multiply((self.ecc.FQ(x), self.ecc.FQ(y), self.ecc.FQ(1)), curve.COFACTOR)
            self.assertTrue(self.ecc.eq(self.g1(curve.write_g1(curve.map_to_g1(bytes([n])))), expected))
            self.assertTrue(self.ecc.is_inf(self.ecc.multiply(expected, curve.R)))

    def test_its_pairing_accepts_a_right_pin_and_refuses_a_wrong_one(self):
        secret = secrets.randbelow(curve.R - 1) + 1
        verifier_key = curve.G2_GENERATOR.scalar_mul(secret)
        z, public_key = new_pair()
        a = mpin.identity_point(b"alice", public_key)
        share = a.scalar_mul(secret)
        token = token_of(z, (share.scalar_mul(3), -share.scalar_mul(2)), b"alice", public_key, 4711)
        for pin, is_right in ((4711, True), (4712, False)):
            x, y = 12345, 67890
            u, v = a.scalar_mul(x), -(token + a.scalar_mul(pin)).scalar_mul(x + y)
            self.assertEqual(mpin.is_valid(a, curve.read_g2(public_key), u, v, y, verifier_key), is_right)
            product = (self.ecc.pairing(self.g2(public_key), self.g1(curve.write_g1(v)))
                       * self.ecc.pairing(self.g2(curve.write_g2(verifier_key)),
                                          self.g1(curve.write_g1(u + a.scalar_mul(y)))))
            self.assertEqual(product == self.ecc.FQ12.one(), is_right)


class Encodings(unittest.TestCase):
    def test_points_are_read_as_they_are_written(self):
        for _ in range(50):
            scalar = secrets.randbelow(curve.R - 1) + 1
            for point, read, write in ((curve.map_to_g1(b"x"), curve.read_g1, curve.write_g1),
                                       (curve.G2_GENERATOR, curve.read_g2, curve.write_g2)):
                data = write(point.scalar_mul(scalar))
                self.assertTrue(read(data) == point.scalar_mul(scalar))
                self.assertEqual(write(read(data)), data)

    def test_malformed_points_are_refused(self):
        for name, data in malformed.g1().items():
            with self.subTest(name), self.assertRaises(curve.Malformed):
                curve.read_g1(data)
        for name, data in malformed.g2().items():
            with self.subTest(name), self.assertRaises(curve.Malformed):
                curve.read_g2(data)

    def test_infinity_is_not_written(self):
        for point, write in ((curve.map_to_g1(b"x"), curve.write_g1), (curve.G2_GENERATOR, curve.write_g2)):
            with self.assertRaises(curve.Malformed):
                write(point.scalar_mul(curve.R))


class Scheme(unittest.TestCase):
    def test_an_identity_is_of_its_bytes_followed_by_the_public_key(self):
        point = mpin.identity_point(b"alice", b"key")
        self.assertEqual(curve.write_g1(point), curve.write_g1(curve.map_to_g1(b"alicekey")))

    def test_the_number_is_of_time_u_and_message(self):
        expected = int(hashlib.sha256(b"\x01\x02\x03\x04" + b"u" * 97 + b"m" * 32).hexdigest(), 16) % curve.R
        self.assertEqual(mpin.number(0x01020304, b"u" * 97, b"m" * 32), expected)


class PairingHelper(unittest.TestCase):
    def ask(self, *lines):
        done = subprocess.run([sys.executable, os.path.join(FOLDER, "pairing-helper")], capture_output=True, text=True,
                              input="".join(line + "\n" for line in lines), timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(len(answers), len(lines))
        return answers

    def test_multiples_are_those_of_the_authority(self):
        scalars = [1, 2, curve.R - 1, curve.R + 1, 2 ** 256 - 1]
        scalars += [secrets.randbelow(curve.R - 1) + 1 for _ in range(50)]
        answers = self.ask(*(json.dumps({"multiply": scalar.to_bytes(32, "big").hex()}) for scalar in scalars))
        self.assertEqual([answer["point"] for answer in answers],
                         [curve.write_g2(curve.G2_GENERATOR.scalar_mul(scalar)).hex() for scalar in scalars])
        self.assertEqual(self.ask('{"multiply": "02"}')[0]["point"], answers[1]["point"])

    def test_points_are_checked(self):
        good = [curve.write_g2(curve.G2_GENERATOR.scalar_mul(n + 1)) for n in range(20)]
        answers = self.ask(*(json.dumps({"check": data.hex()}) for data in good),
                           *(json.dumps({"check": data.hex()}) for data in malformed.g2().values()),
                           json.dumps({"check": good[0].hex() + " "}), json.dumps({"check": "zz"}))
        self.assertEqual(answers, [{"isValid": True}] * 20 + [{"isValid": False}] * (len(answers) - 20))

    def test_anything_else_is_an_error_and_shows_no_scalar(self):
        scalar = "5" * 66
        answers = self.ask("", "x", "[]", "1", "null", "{}", '{"multiply": 1}', '{"multiply": ""}', '{"multiply": "0"}',
                           '{"multiply": "00"}', json.dumps({"multiply": f"{curve.R:064x}"}),
                           json.dumps({"multiply": scalar}), '{"check": 1}', '{"other": "00"}',
                           '{"check": "00", "multiply": "01"}', "[" * 100_000,
                           '{"multiply": "%s' % scalar)
        for answer in answers:
            self.assertEqual(list(answer), ["error"])
            self.assertNotIn("555", answer["error"])
