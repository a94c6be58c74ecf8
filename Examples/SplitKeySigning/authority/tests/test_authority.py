import contextlib
import copy
import io
import json
import secrets
import sqlite3
import threading
import unittest

import jwt

from authority import curve, mpin

from . import malformed
from .signer import Key, document_hash, new_pair
from .support import LOGIN_PIN, PIN, USER, LocalAuthority, basic


class Enrolment(LocalAuthority):
    def test_a_code_gives_a_login_key_and_a_session_a_signing_key(self):
        login, signing = self.login_key(), self.signing_key()
        for key, scope in ((login, "auth"), (signing, "dvs-auth")):
            content = json.loads(key.mpin_id)
            self.assertEqual(list(content), ["iat", "userID", "cID", "salt", "v", "scope", "dtas", "vt"])
            self.assertEqual((content["scope"], content["userID"], content["dtas"]), ([scope], USER, ["dta1", "dta2"]))
            self.assertRegex(content["salt"], "^[0-9a-f]{32}$")

    def test_a_code_is_used_up_by_the_confirmation_and_not_before(self):
        code = self.store.add_code(USER)
        first, second, third = (self.host.register(code, LOGIN_PIN) for _ in range(3))
        self.assertEqual(len({first.mpin_id, second.mpin_id, third.mpin_id}), 3)
        confirm = lambda key, pin=LOGIN_PIN: self.host.post(
            "/rps/v2/dvsconfirm", {"token": code} | self.signature(key, pin))[0]
        self.assertEqual(confirm(first, 1), 401)
        self.assertEqual(confirm(second), 200)
        self.assertEqual([confirm(first), confirm(third), confirm(second)], [403, 403, 403])
        status, _ = self.host.post("/rps/v2/dvsregister", {"token": code, "publicKey": new_pair()[1].hex()})
        self.assertEqual(status, 401)
        self.assertEqual(self.host.login(second, LOGIN_PIN, self.second)[0], 200)

    def test_many_confirmations_at_once_use_a_code_once(self):
        code = self.store.add_code(USER)
        bodies = [{"token": code} | self.signature(self.host.register(code, LOGIN_PIN), LOGIN_PIN) for _ in range(6)]
        self.assertEqual(sorted(at_once(lambda body: self.host.post("/rps/v2/dvsconfirm", body)[0], bodies)),
                         [200] + [403] * 5)

    def test_the_same_probe_again_gets_the_same_answer_and_is_counted_once(self):
        code = self.store.add_code(USER)
        key = self.host.register(code, LOGIN_PIN)
        for pin, expected in ((1, 401), (LOGIN_PIN, 200)):
            body = {"token": code} | self.signature(key, pin)
            before = self.count()
            self.assertEqual([self.host.post("/rps/v2/dvsconfirm", body)[0] for _ in range(3)], [expected] * 3)
            self.assertEqual(self.count(), before + 1)

    def test_unknown_tokens_are_refused(self):
        public_key = new_pair()[1].hex()
        for token in ("00" * 16, "é", "' OR 1=1 --"):
            self.assertEqual(self.host.post("/rps/v2/dvsregister", {"token": token, "publicKey": public_key})[0], 401)
        code = self.store.add_code(USER)
        self.now += 24 * 3600 + 1
        self.assertEqual(self.host.post("/rps/v2/dvsregister", {"token": code, "publicKey": public_key})[0], 401)

    def test_a_session_tests_the_pin_of_an_enrolled_key_of_its_user_only(self):
        login = self.login_key()
        session = self.session(login)
        signing = self.host.enrol(session, PIN, self.second)
        other = self.host.enrol(self.store.add_code("bob@example.com"), LOGIN_PIN, self.second)
        of_other = self.session(other)
        confirm = lambda token, key, pin: self.host.post(
            "/rps/v2/dvsconfirm", {"token": token} | self.signature(key, pin))[0]
        self.assertEqual(confirm(session, signing, PIN), 200)
        self.assertEqual(confirm(session, login, LOGIN_PIN), 200)
        self.assertEqual(confirm(session, signing, 1), 401)
        before = self.count()
        self.assertEqual([confirm(of_other, signing, PIN), confirm("x", signing, PIN)], [403, 403])
        self.now += 601
        self.assertEqual(confirm(session, signing, PIN), 403)
        self.assertEqual(self.count(), before)

    def test_a_session_does_not_confirm_a_login_key_and_a_code_no_other_key(self):
        session, code = self.session(self.login_key()), self.store.add_code(USER)
        pending_login, pending_signing = self.host.register(code, LOGIN_PIN), self.host.register(session, PIN)
        for token, key, pin in ((session, pending_login, LOGIN_PIN), (code, pending_signing, PIN)):
            body = {"token": token} | self.signature(key, pin)
            self.assertEqual(self.host.post("/rps/v2/dvsconfirm", body)[0], 403)

    def test_a_key_that_is_not_confirmed_neither_logs_in_nor_signs(self):
        key = self.host.register(self.store.add_code(USER), LOGIN_PIN)
        self.assertEqual(self.host.post("/rps/v2/login/challenge", {"mpinId": key.mpin_id.hex()})[0], 404)
        signing = self.host.register(self.session(self.login_key()), PIN)
        before = self.count()
        self.assertEqual(self.verify(self.signature(signing)), 400)
        self.assertEqual(self.count(), before)

    def test_a_share_of_the_second_issuer_is_given_once_and_for_60_seconds(self):
        register = lambda: self.host.post(
            "/rps/v2/dvsregister", {"token": self.store.add_code(USER), "publicKey": new_pair()[1].hex()})[1]["cs2url"]
        get = lambda url: self.host.call(url)[0]
        url = register()
        self.assertEqual([get(url), get(url)], [200, 410])
        url = register()
        self.assertEqual(sorted(at_once(get, [url] * 6)), [200] + [410] * 5)
        url = register()
        self.now += 61
        self.assertEqual([get(url), get(url)], [410, 410])
        url = register()
        changed = url[:-1] + ("0" if url[-1] != "0" else "1")
        wrong_use = url.replace("/share?", "/verifier-key?")
        first = url.replace(url.split("/share")[0], self.verifier.issuers[0].url)
        self.assertEqual([get(changed), get(wrong_use), get(first), get(url.split("?")[0]), get(url)],
                         [403, 403, 403, 403, 200])


class Login(LocalAuthority):
    def test_a_challenge_is_for_one_signature(self):
        key = self.login_key()
        challenge = self.host.challenge(key)
        one, other = (self.signature(key, LOGIN_PIN, challenge) for _ in range(2))
        post = lambda body: self.host.post("/rps/v2/login", body)
        before = self.count()
        answers = [post(one) for _ in range(3)]
        self.assertEqual([answer[0] for answer in answers], [200] * 3)
        self.assertEqual(len({answer[1]["session"] for answer in answers}), 1)
        self.assertEqual(post(other)[0], 400)
        self.assertEqual(self.count(), before + 1)
        session = answers[0][1]["session"]
        self.assertIsNotNone(self.store.session(session))
        self.now += 61
        self.assertEqual(post(one)[0], 400)
        self.now += 540
        self.assertIsNone(self.store.session(session))

    def test_a_wrong_pin_uses_the_challenge_and_is_counted_once(self):
        key = self.login_key()
        challenge = self.host.challenge(key)
        wrong = self.signature(key, 1, challenge)
        self.assertEqual([self.host.post("/rps/v2/login", wrong)[0] for _ in range(3)], [401] * 3)
        self.assertEqual(self.host.post("/rps/v2/login", self.signature(key, LOGIN_PIN, challenge))[0], 400)
        self.assertEqual(self.wrong(key), 1)

    def test_a_challenge_is_good_for_60_seconds_and_its_key(self):
        key, other = self.login_key(), self.login_key()
        challenge = self.host.challenge(key)
        before = self.count()
        post = lambda body: self.host.post("/rps/v2/login", body)[0]
        self.assertEqual(post(self.signature(other, LOGIN_PIN, challenge)), 400)
        self.assertEqual(post(self.signature(key, LOGIN_PIN, secrets.token_bytes(32))), 400)
        self.now += 60
        self.assertEqual(post(self.signature(key, LOGIN_PIN, challenge)), 400)
        self.assertEqual(self.count(), before)
        challenge = self.host.challenge(key)
        self.now += 59
        self.assertEqual(post(self.signature(key, LOGIN_PIN, challenge)), 200)

    def test_a_signing_key_never_logs_in_and_a_login_key_never_signs(self):
        login, signing = self.login_key(), self.signing_key()
        before = self.count()
        self.assertEqual(self.host.post("/rps/v2/login/challenge", {"mpinId": signing.mpin_id.hex()})[0], 404)
        challenge = self.host.challenge(login)
        self.assertEqual(self.host.post("/rps/v2/login", self.signature(signing, PIN, challenge))[0], 400)
        self.assertEqual(self.verify(self.signature(login, LOGIN_PIN)), 400)
        self.assertEqual(self.count(), before)

    def test_three_wrong_pins_block_the_login(self):
        key = self.login_key()
        self.assertEqual([self.host.login(key, 1, self.second)[0] for _ in range(4)], [401, 401, 410, 410])
        self.assertEqual(self.host.login(key, LOGIN_PIN, self.second)[0], 410)


class Verification(LocalAuthority):
    def test_a_right_signature_gets_a_receipt(self):
        key = self.signing_key()
        body = self.signature(key, message=document_hash(b"a document"))
        status, answer = self.host.verify(body, self.basic)
        self.assertEqual(status, 200)
        keys = jwt.PyJWKSet.from_dict(self.host.call("/dvs/jwks")[1])
        header = jwt.get_unverified_header(answer["certificate"])
        receipt = jwt.decode(answer["certificate"], keys[header["kid"]], ["RS256"], audience=self.client["client_id"],
                             issuer=self.host.url, options={"verify_exp": False, "verify_iat": False})
        signature = body["signature"]
        self.assertEqual({name: receipt[name] for name in ("hash", "mpinId", "publicKey")},
                         {name: signature[name] for name in ("hash", "mpinId", "publicKey")})
        self.assertEqual((receipt["timestamp"], receipt["iat"], receipt["exp"] - receipt["iat"]),
                         (body["timestamp"], self.second, 600))
        body = key.sign(secrets.token_bytes(32), self.second + 60, PIN)
        receipt = jwt.decode(self.host.verify(body, self.basic)[1]["certificate"], options={"verify_signature": False})
        self.assertEqual(receipt["cAt"], self.second + 60)
        self.assertNotIn(header["kid"], [one["kid"] for one in self.host.call("/oidc/jwks")[1]["keys"]])

    def test_an_unknown_client_is_refused_before_anything_is_counted(self):
        key = self.signing_key()
        before = self.count()
        other = self.store.add_client("other", "https://localhost/")
        for credentials in ("", "Basic", "Basic !!", "Basic eA==", "Bearer x",
                            basic({"client_id": "x", "client_secret": "y"}),
                            basic({"client_id": self.client["client_id"], "client_secret": other["client_secret"]}),
                            basic({"client_id": self.client["client_id"], "client_secret": ""}),
                            basic({"client_id": "é", "client_secret": "é"})):
            self.assertEqual(self.host.verify(self.signature(key, 1), credentials)[0], 403, credentials)
        self.assertEqual(self.count(), before)

    def test_three_wrong_block_and_the_right_one_after_is_refused(self):
        key = self.signing_key()
        before = self.count()
        answers = [self.verify(self.signature(key, pin)) for pin in (1, 2, 3, PIN, PIN)]
        self.assertEqual((answers, self.count()), ([401, 401, 410, 410, 410], before + 3))
        self.assertTrue([one for one in self.store.tries() if one["mpinId"] == key.mpin_id.hex()][0]["blocked"])

    def test_a_right_one_clears(self):
        key = self.signing_key()
        for _ in range(3):
            self.assertEqual([self.verify(self.signature(key, pin)) for pin in (1, 2, PIN)], [401, 401, 200])
            self.assertEqual(self.wrong(key), 0)

    def test_the_same_signature_again_is_counted_once_in_any_spelling(self):
        key = self.signing_key()
        for pin, expected, wrong in ((PIN, 200, 0), (1, 401, 1)):
            body = self.signature(key, pin)
            upper = copy.deepcopy(body)
            for name in ("hash", "mpinId", "u", "v", "publicKey"):
                upper["signature"][name] = upper["signature"][name].upper()
            renamed = copy.deepcopy(body)
            renamed["signature"]["mpinid"] = renamed["signature"].pop("mpinId")
            before = self.count()
            self.assertEqual([self.verify(one) for one in (body, upper, renamed, body)], [expected] * 4)
            self.assertEqual((self.count(), self.wrong(key)), (before + 1, wrong))

    def test_an_old_right_signature_does_not_clear(self):
        key = self.signing_key()
        right = self.signature(key)
        self.assertEqual([self.verify(right), self.verify(self.signature(key, 1)), self.verify(self.signature(key, 2))],
                         [200, 401, 401])
        self.assertEqual((self.verify(right), self.wrong(key)), (200, 2))
        self.assertEqual([self.verify(self.signature(key, 3)), self.verify(self.signature(key))], [410, 410])

    def test_tries_at_once_are_three_at_most(self):
        key = self.signing_key()
        answers = at_once(self.verify, [self.signature(key, pin) for pin in range(1, 13)])
        self.assertEqual((sorted(answers), self.wrong(key)), ([401] * 2 + [410] * 10, 3))
        other = self.signing_key()
        self.assertEqual(at_once(self.verify, [self.signature(other) for _ in range(12)]), [200] * 12)

    def test_the_third_try_at_once_with_others_is_the_last(self):
        key = self.signing_key()
        self.assertEqual([self.verify(self.signature(key, pin)) for pin in (1, 2)], [401, 401])
        # The right PIN is among them: it is right if it comes first, and then three more are wrong.
        before = self.count()
        answers = at_once(self.verify, [self.signature(key, pin) for pin in (PIN, 3, 4, 5, 6, 7)])
        self.assertEqual((self.wrong(key), self.count() - before), (3, 4) if 200 in answers else (3, 1))
        self.assertEqual(self.verify(self.signature(key)), 410)

    def test_a_database_that_is_locked_or_full_gives_no_verdict_and_no_uncounted_try(self):
        key = self.signing_key()
        wrong = [self.signature(key, pin) for pin in (1, 2, 3)]
        pragma = lambda text: self.store.connection.execute("PRAGMA " + text).fetchone()[0]
        pragma("busy_timeout = 50")
        with contextlib.redirect_stderr(io.StringIO()) as log:
            other = sqlite3.connect(f"{self.state}/authority.sqlite", isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            self.assertEqual([self.verify(body) for body in wrong], [503] * 3)
            self.assertIs(self.host.verify(wrong[0], self.basic)[1]["counted"], False)
            other.execute("ROLLBACK")
            other.close()
            pragma(f"max_page_count = {pragma('page_count')}")
            # The last pages have room for some.
            while (status := self.verify(self.signature(key))) == 200:
                pass
            self.assertEqual([status] + [self.verify(body) for body in wrong], [503] * 4)
            self.assertIs(self.host.verify(wrong[0], self.basic)[1]["counted"], False)
            pragma("max_page_count = 1000000")
        self.assertRegex(log.getvalue(), "(?s)locked.*full")
        self.assertEqual(self.wrong(key), 0)
        self.assertEqual([self.verify(body) for body in wrong], [401, 401, 410])

    def test_a_try_that_is_on_disk_is_not_said_to_be_uncounted(self):
        key = self.signing_key()
        wrong = self.signature(key, 1)
        self.assertEqual(self.verify(wrong), 401)
        self.store.connection.execute("PRAGMA busy_timeout = 50")
        other = sqlite3.connect(f"{self.state}/authority.sqlite", isolation_level=None)
        with contextlib.redirect_stderr(io.StringIO()):
            other.execute("BEGIN IMMEDIATE")
            status, answer = self.host.verify(wrong, self.basic)
        other.close()
        self.assertEqual((status, "counted" in answer, self.wrong(key)), (503, False, 1))

    def test_a_verdict_is_of_its_key_alone(self):
        key, other = self.signing_key(), self.signing_key()
        body = self.signature(key)
        self.assertEqual(self.verify(body), 200)
        body["signature"] |= {"mpinId": other.mpin_id.hex(), "publicKey": other.public_key.hex()}
        self.assertEqual(self.verify(body), 401)

    def test_a_try_that_a_kill_left_without_a_verdict_is_verified_again_and_counted_once(self):
        key = self.signing_key()
        right = self.signature(key)
        read = mpin.Signature.read(right["signature"], right["timestamp"])

        def killed():
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            self.store.try_(read.mpin_id, read.digest, killed)
        self.assertEqual(self.wrong(key), 1)
        self.assertEqual([self.verify(self.signature(key, pin)) for pin in (1, 2, PIN)], [401, 410, 410])
        # The two after it are still wrong ones in a row.
        self.assertEqual((self.verify(right), self.wrong(key)), (200, 2))
        self.assertEqual([self.verify(self.signature(key, 3)), self.verify(self.signature(key))], [410, 410])

    def test_another_public_key_is_refused_without_a_count(self):
        """Who knows s1 + s2 can make a pair that fits any identity: the equation holds, the publicKey is another."""
        key = self.signing_key()
        z, public_key = new_pair()
        forged = Key(key.mpin_id, public_key, None)
        secret = 0
        for name in ("dta1", "dta2"):
            with open(f"{self.state}/{name}/secret", "rb") as file:
                secret += int.from_bytes(file.read(), "big")
        forged.token = forged.a.scalar_mul(secret * z % curve.R) + -forged.a.scalar_mul(PIN)
        body = self.signature(forged)
        read = mpin.Signature.read(body["signature"], body["timestamp"])
        self.assertTrue(read.verify(self.verifier.verifier_key))
        before = self.count()
        self.assertEqual(self.verify(body), 400)
        swapped = self.signature(key)
        swapped["signature"]["publicKey"] = public_key.hex()
        self.assertEqual((self.verify(swapped), self.count()), (400, before))

    def test_any_bit_turned_is_never_accepted(self):
        key = self.signing_key()
        # Late enough that no time with a bit turned is in the future.
        self.now = 2.0 ** 32 - 1
        timestamp = 1_800_000_000
        body = key.sign(secrets.token_bytes(32), timestamp, PIN)
        self.assertEqual(self.verify(body), 200)
        request = Direct(self.basic)
        self.assertEqual(request.status(self.verifier.verify, {"type": "verification"} | body), 200)
        statuses = {}
        for name in ("hash", "mpinId", "u", "v", "publicKey"):
            data = bytes.fromhex(body["signature"][name])
            for bit in range(8 * len(data)):
                changed = copy.deepcopy(body)
                changed["signature"][name] = (int.from_bytes(data, "big") ^ 1 << bit).to_bytes(len(data), "big").hex()
                self.forget_tries()
                status = request.status(self.verifier.verify, {"type": "verification"} | changed)
                statuses.setdefault(name, set()).add(status)
        for bit in range(32):
            self.forget_tries()
            changed = body | {"timestamp": timestamp ^ 1 << bit}
            statuses.setdefault("timestamp", set()).add(
                request.status(self.verifier.verify, {"type": "verification"} | changed))
        self.assertEqual(statuses, {"hash": {401}, "mpinId": {400}, "u": {400}, "v": {400}, "publicKey": {400},
                                    "timestamp": {401}})


class MalformedRequests(LocalAuthority):
    def test_each_malformed_point_at_each_place_is_refused_without_a_count(self):
        login = self.login_key()
        session = self.session(login)
        signing = self.host.enrol(session, PIN, self.second)
        before = self.count()
        challenge = self.host.challenge(login)
        places = [
            (lambda body: self.verify(body), self.signature(signing)),
            (lambda body: self.host.post("/rps/v2/login", body)[0], self.signature(login, LOGIN_PIN, challenge)),
            (lambda body: self.host.post("/rps/v2/dvsconfirm", {"token": session} | body)[0], self.signature(signing)),
        ]
        points = {"u": malformed.g1(), "v": malformed.g1(), "publicKey": malformed.g2()}
        for number, (send, good) in enumerate(places):
            for name, kinds in points.items():
                for kind, data in kinds.items():
                    with self.subTest(place=number, point=name, kind=kind):
                        body = copy.deepcopy(good)
                        body["signature"][name] = data.hex()
                        self.assertEqual(send(body), 400)
        for kind, data in malformed.g2().items():
            with self.subTest(place="dvsregister", kind=kind):
                body = {"token": session, "publicKey": data.hex()}
                self.assertEqual(self.host.post("/rps/v2/dvsregister", body)[0], 400)
        self.assertEqual(self.count(), before)
        # The challenge is not used by what is malformed.
        self.assertEqual([send(good) for send, good in places], [200] * 3)

    def test_other_malformed_signatures_are_refused_without_a_count(self):
        key = self.signing_key()
        good = self.signature(key)
        before = self.count()
        signature = good["signature"]
        bodies = [good | {"timestamp": value} for value in (
            None, 0, -1, 2 ** 32, 10 ** 400, True, 1.5, float(self.second), str(self.second), [], self.second + 61)]
        bodies += [good | {"type": value} for value in (None, "", "Verification", 1)]
        bodies += [good | {"signature": value} for value in (None, [], "x", 1, {})]
        for name in signature:
            bodies += [good | {"signature": signature | {name: value}} for value in ("", None, 1, [], {}, "\ud800")
                       if (name, value) != ("dtas", "\ud800")]
            bodies.append(good | {"signature": {other: value for other, value in signature.items() if other != name}})
        for name in ("hash", "mpinId", "u", "v", "publicKey"):
            bodies += [good | {"signature": signature | {name: value}} for value in (
                "zz", signature[name] + " ", " " + signature[name], signature[name][:-1], signature[name] + "\n",
                "0x" + signature[name], signature[name].encode().hex(), signature[name] + "00", "١" * 64)]
        bodies.append(good | {"signature": signature | {"mpinid": "00", "mpinId": ""}})
        for body in bodies:
            with self.subTest(str(body)[-200:]):
                self.assertEqual(self.verify(body), 400)
        for data in (b"", b"{", b"[]", b"null", b"\xff", b"[" * 60_000, b'{"a":' * 10_000, b'"x"'):
            with self.subTest(data[:5]):
                for path in ("/dvs/verify", "/rps/v2/dvsregister", "/rps/v2/dvsconfirm", "/rps/v2/login",
                             "/rps/v2/login/challenge"):
                    self.assertEqual(self.host.post(path, data, {"Authorization": self.basic})[0], 400)
        self.assertEqual(self.count(), before)
        self.assertEqual(self.verify(good), 200)

    def test_requests_that_are_no_requests_of_the_authority(self):
        self.assertEqual(self.host.post("/dvs/verify", b"x" * 70_000)[0], 413)
        self.assertEqual(self.host.call("/dvs/verify")[0], 405)
        self.assertEqual(self.host.call("/other")[0], 404)
        self.assertEqual(self.host.post("/rps/v2/login/challenge", {"mpinId": "00"})[0], 404)


class Stored(LocalAuthority):
    def test_no_code_session_secret_or_verifier_key_is_in_the_database(self):
        code = self.store.add_code(USER)
        key = self.host.enrol(code, LOGIN_PIN, self.second)
        session = self.session(key)
        with open(f"{self.state}/authority.sqlite", "rb") as file:
            data = file.read()
        self.assertIn(key.mpin_id, data)
        for secret in (code, session, self.client["client_secret"]):
            self.assertNotIn(secret.encode(), data)
        w = curve.write_g2(self.verifier.verifier_key)
        self.assertNotIn(w[:48], data)
        self.assertNotIn(w[:48].hex().encode(), data)


class Direct:
    """A request without HTTP, where thousands are needed."""

    def __init__(self, basic):
        self.headers = {"Authorization": basic}

    def status(self, function, body) -> int:
        from authority.web import Refusal, Request
        try:
            function(Request(self.headers, "", json.dumps(body).encode()))
            return 200
        except Refusal as refusal:
            return refusal.status
        except curve.Malformed:
            return 400


def at_once(function, values):
    results = [None] * len(values)
    barrier = threading.Barrier(len(values))

    def run(index):
        barrier.wait()
        results[index] = function(values[index])

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(values))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


if __name__ == "__main__":
    unittest.main()
