import http.client
import json
import os
import random
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import unittest

from .support import FOLDER, LOGIN_PIN, PIN, REDIRECT_URI, USER, ServedAuthority, basic

WRONG = 1


class Processes(ServedAuthority):
    def children(self):
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with open(path) as file:
            return [int(word) for word in file.read().split()]

    def wait_until_gone(self, pids):
        # A process that has ended and that no parent waits for stays as a zombie.
        def is_gone(pid):
            try:
                with open(f"/proc/{pid}/stat") as file:
                    return file.read().rpartition(")")[2].split()[0] == "Z"
            except (FileNotFoundError, ProcessLookupError):
                return True
        self.wait(lambda: all(is_gone(pid) for pid in pids))

    def test_sigterm_and_sigkill_end_the_issuers_too_and_a_restart_goes_on(self):
        for number, status in ((signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGKILL, -9)):
            children, port = self.children(), self.port
            self.assertEqual(len(children), 2)
            with open(os.path.join(self.state, "ca.pem")) as file:
                ca = file.read()
            self.assertEqual(self.kill(number), status)
            self.wait_until_gone(children)
            self.start()
            self.assertEqual(self.port, port)
            with open(os.path.join(self.state, "ca.pem")) as file:
                self.assertEqual(file.read(), ca)
        self.assertNotIn("Fatal", self.read_log())
        self.assertNotIn("Traceback", self.read_log())

    def read_log(self):
        with open(os.path.join(self.state, "log")) as file:
            return file.read()

    def test_commands_work_while_it_serves(self):
        key = self.host.enrol(self.run_command("code", USER), LOGIN_PIN, int(time.time()))
        client = json.loads(self.run_command("register", "--name", "shop", "--redirect-uri", REDIRECT_URI))
        self.assertEqual(set(client), {"client_id", "client_secret"})
        expected = {"mpinId": key.mpin_id.hex(), "user": USER, "scope": "auth", "enrolled": True,
                    "wrong": 0, "blocked": False}
        self.assertEqual(json.loads(self.run_command("tries")), [expected])
        self.assertEqual(self.host.login(key, WRONG, int(time.time()))[0], 401)
        self.assertEqual(json.loads(self.run_command("tries", USER)), [expected | {"wrong": 1}])
        self.assertEqual(json.loads(self.run_command("tries", "bob")), [])
        self.assertIn("tests and demonstrations", self.read_log())

    def test_a_kill_during_a_start_spoils_nothing(self):
        self.kill()
        for _ in range(10):
            shutil.rmtree(os.path.join(self.state, random.choice(("tls", "dta1", "dta2"))), ignore_errors=True)
            process = subprocess.Popen(self.command("serve"), cwd=FOLDER, stdout=self.log, stderr=self.log)
            time.sleep(random.uniform(0, 1))
            process.kill()
            process.wait()
            self.start()
            self.assertEqual(self.host.call("/dvs/jwks")[0], 200)
            self.kill()

    def test_a_state_is_served_once(self):
        other = subprocess.run(self.command("serve"), cwd=FOLDER, capture_output=True, text=True, timeout=60)
        self.assertEqual(other.returncode, 1)
        self.assertIn("Another authority", other.stderr)

    def test_secrets_are_files_of_this_user_only(self):
        for folder, _, names in os.walk(self.state):
            for name in names:
                if name != "log":
                    self.assertEqual(os.stat(os.path.join(folder, name)).st_mode & 0o077, 0, name)

    def test_a_peer_that_says_nothing_does_not_keep_others_waiting(self):
        with socket.create_connection(("127.0.0.1", self.port)), socket.create_connection(("127.0.0.1", self.port)):
            self.assertEqual(self.host.call("/dvs/jwks")[0], 200)

    def test_requests_that_are_no_http_leave_no_traceback_and_no_control_characters(self):
        context = ssl.create_default_context(cafile=os.path.join(self.state, "ca.pem"))

        def status(head):
            with socket.create_connection(("127.0.0.1", self.port)) as plain:
                with context.wrap_socket(plain, server_hostname="localhost") as connection:
                    connection.sendall(head + b"\r\n\r\n{}")
                    data = connection.makefile("rb").read()
            # One answer: no part of a request is another one.
            self.assertEqual(data.count(b"Content-Length: "), 1, data)
            return int(data.split()[1])

        post = b"POST /dvs/verify HTTP/1.1\r\nConnection: close\r\n"
        for fields in (b"X: y", b"Content-Length: 2\r\nContent-Length: 3", b"Content-Length: -1",
                       b"Content-Length: 0x2", b"Content-Length: " + b"9" * 5000, b"Transfer-Encoding: chunked"):
            self.assertEqual(status(post + fields), 411)
        for path, expected in ((b"http://[", 404), (b"//[", 404), (b"/dvs//jwks", 404), (b"/%64vs/jwks", 404),
                               (b"/\x1b[31m?s3cret", 404), (b"/?" + b"a" * 70_000, 414)):
            self.assertEqual(status(b"GET " + path + b" HTTP/1.1\r\nConnection: close"), expected)
        for method in (b"HEAD", b"OPTIONS", b"\x1b[31m"):
            self.assertEqual(status(method + b" /dvs/jwks HTTP/1.1\r\nConnection: close"), 501)
        many = b"".join(b"\r\nA%d: b" % number for number in range(200))
        self.assertEqual(status(b"GET /dvs/jwks HTTP/1.1" + many), 431)
        log = self.read_log()
        self.assertIn(r"GET /\x1b[31m 404", log)
        for text in ("Traceback", "\x1b", "s3cret"):
            self.assertNotIn(text, log)

    def test_what_cannot_be_served_or_registered_is_said(self):
        def refused(*words):
            done = subprocess.run(self.command(*words), cwd=FOLDER, capture_output=True, text=True, timeout=60)
            self.assertNotIn("Traceback", done.stderr)
            self.assertNotEqual(done.returncode, 0)
            return done.stderr

        for uri in ("", "login", "/login", "//shop.example/login", "http://shop.example/login", "ftp://shop.example/",
                    "https:///login", "https://shop.example/#a", "https://shop.example/#", "https://u@shop.example/",
                    "https://shop.example/a b", "https://shop.example/\n", "http://localhost.example/",
                    "http://localhost:8080@shop.example/", "http://127.0.0.1.example/", "https:\\\\shop.example",
                    "javascript:alert(1)"):
            with self.subTest(uri):
                self.assertIn("--redirect-uri", refused("register", "--name", "shop", "--redirect-uri", uri))
        for uri in ("https://shop.example", "https://shop.example:8443/login?a=b", "http://localhost:8080/login",
                    "http://127.0.0.1/login", "http://[::1]:1/login", "https://[2001:db8::1]/"):
            self.run_command("register", "--name", "shop", "--redirect-uri", uri)
        self.kill()
        with socket.create_server(("127.0.0.1", 0)) as other:
            for port in (other.getsockname()[1], 65536, -1):
                self.assertIn(f"Port {port} cannot be opened", refused("serve", "--port", str(port)))
        self.assertIn("--ports-file", refused("serve", "--port", "0", "--ports-file", "/proc/none/ports"))

    def test_a_session_and_a_challenge_outlive_a_kill(self):
        now = int(time.time())
        key = self.host.enrol(self.run_command("code", USER), LOGIN_PIN, now)
        body = key.sign(self.host.challenge(key), now, LOGIN_PIN)
        self.kill()
        self.start()
        status, first = self.host.post("/rps/v2/login", body)
        self.assertEqual(status, 200)
        self.kill()
        self.start()
        self.assertEqual(self.host.post("/rps/v2/login", body), (200, first))
        self.host.enrol(first["session"], PIN, now)

    def test_30_kills_never_give_a_fourth_try(self):
        now = int(time.time())
        client = basic(json.loads(self.run_command("register", "--name", "shop", "--redirect-uri", REDIRECT_URI)))
        login = self.host.enrol(self.run_command("code", USER), LOGIN_PIN, now)
        session = self.host.login(login, LOGIN_PIN, now)[1]["session"]
        keys = [self.host.enrol(session, PIN, now) for _ in range(30)]
        tried = 0
        for key in keys:
            # Three senders of wrong PINs, each body twice as a host does, and a kill in the middle of them.
            wrong = [key.sign(secrets.token_bytes(32), now, WRONG) for _ in range(9)]
            answers = []

            def send(bodies):
                for body in bodies:
                    for _ in range(2):
                        try:
                            answers.append((body["signature"]["u"], self.host.verify(body, client)))
                        except (OSError, ValueError, http.client.HTTPException):
                            pass

            threads = [threading.Thread(target=send, args=(wrong[n::3],)) for n in range(3)]
            for thread in threads:
                thread.start()
            number = random.randrange(5)
            self.wait(lambda: len(answers) >= number)
            time.sleep(random.uniform(0, 0.01))
            self.kill()
            for thread in threads:
                thread.join()
            tried += len(answers)
            self.start()
            send(wrong)
            self.assertEqual({answer[0] for _, answer in answers} - {401, 410}, set())
            # Without the block an answer is of a try: those two, and the third, which blocks.
            self.assertLessEqual(len({u for u, answer in answers if answer[0] == 401}), 2)
            self.assertEqual(self.rows(key), 3)
            self.assertEqual(self.host.verify(key.sign(secrets.token_bytes(32), now, PIN), client)[0], 410)
        print(f"\n{tried} answers came before the 30 kills", flush=True)

    def rows(self, key):
        import sqlite3
        connection = sqlite3.connect(os.path.join(self.state, "authority.sqlite"), timeout=30)
        try:
            # The first was the probe.
            return connection.execute("SELECT count(*) FROM tries WHERE mpin_id = ?", (key.mpin_id,)).fetchone()[0] - 1
        finally:
            connection.close()


if __name__ == "__main__":
    unittest.main()
