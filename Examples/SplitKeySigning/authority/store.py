"""What the authority remembers, in SQLite. Each commit is on disk before an answer leaves."""

import contextlib
import hashlib
import os
import secrets
import sqlite3
import tempfile
import threading
import time

CODE_LIFETIME = 24 * 3600
WRONG_TRIES = 3

# Codes, sessions and secrets are stored as hashes. `tries` is never thinned out: an old right signature that was
# forgotten could be sent again, and would clear the wrong ones.
SCHEMA = """
CREATE TABLE IF NOT EXISTS codes (token TEXT PRIMARY KEY, user TEXT NOT NULL, expires REAL NOT NULL, used BLOB);
CREATE TABLE IF NOT EXISTS sessions (token TEXT PRIMARY KEY, user TEXT NOT NULL, began REAL NOT NULL,
    expires REAL NOT NULL);
CREATE TABLE IF NOT EXISTS keys (mpin_id BLOB PRIMARY KEY, public_key BLOB NOT NULL, user TEXT NOT NULL,
    scope TEXT NOT NULL, token TEXT NOT NULL, enrolled INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS tries (number INTEGER PRIMARY KEY AUTOINCREMENT, mpin_id BLOB NOT NULL, digest BLOB NOT NULL,
    is_right INTEGER, UNIQUE (mpin_id, digest));
CREATE TABLE IF NOT EXISTS challenges (challenge BLOB PRIMARY KEY, mpin_id BLOB NOT NULL, expires REAL NOT NULL,
    used BLOB);
CREATE TABLE IF NOT EXISTS clients (id TEXT PRIMARY KEY, secret TEXT NOT NULL, name TEXT NOT NULL,
    redirect_uri TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS grants (code TEXT PRIMARY KEY, client TEXT NOT NULL, redirect_uri TEXT NOT NULL,
    user TEXT NOT NULL, nonce TEXT, challenge TEXT NOT NULL, began REAL NOT NULL, expires REAL NOT NULL);
"""


def hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def private_file(path: str, make) -> bytes:
    """The bytes of a file of this user only. Without one, `make()` is written first, whole or not at all."""
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
        with os.fdopen(descriptor, "wb") as file:
            file.write(make())
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
        os.unlink(temporary)
    with open(path, "rb") as file:
        return file.read()


class NotCounted(sqlite3.OperationalError):
    """A try that could not be written, and is not on disk."""


class Database:
    """One connection, one transaction at a time; other processes may have theirs."""

    def __init__(self, path: str, schema: str):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        self.lock = threading.RLock()
        self.connection = sqlite3.connect(path, timeout=5, isolation_level=None, check_same_thread=False)
        self.connection.row_factory = sqlite3.Row
        self.connection.execute("PRAGMA synchronous = FULL")
        with self.transaction() as db:
            for statement in schema.split(";"):
                db.execute(statement)

    @contextlib.contextmanager
    def transaction(self):
        with self.lock:
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    def row(self, query: str, *values):
        with self.lock:
            return self.connection.execute(query, values).fetchone()


class Store(Database):
    def __init__(self, state: str, clock=time.time):
        super().__init__(os.path.join(state, "authority.sqlite"), SCHEMA)
        self.clock = clock

    def add_code(self, user: str) -> str:
        code = secrets.token_hex(16)
        with self.transaction() as db:
            db.execute("INSERT INTO codes (token, user, expires) VALUES (?, ?, ?)",
                       (hashed(code), user, self.clock() + CODE_LIFETIME))
        return code

    def code(self, token: str):
        return self.row("SELECT * FROM codes WHERE token = ? AND expires > ?", hashed(token), self.clock())

    def session(self, token: str):
        return self.row("SELECT * FROM sessions WHERE token = ? AND expires > ?", hashed(token), self.clock())

    def add_client(self, name: str, redirect_uri: str) -> dict:
        client, secret = secrets.token_hex(8), secrets.token_hex(32)
        with self.transaction() as db:
            db.execute("INSERT INTO clients VALUES (?, ?, ?, ?)", (client, hashed(secret), name, redirect_uri))
        return {"client_id": client, "client_secret": secret}

    def client(self, client: str):
        return self.row("SELECT * FROM clients WHERE id = ?", client)

    def authenticated_client(self, basic):
        """The client of an id and a secret, or None."""
        row = self.client(basic[0]) if basic else None
        return row if row and secrets.compare_digest(row["secret"], hashed(basic[1])) else None

    def key(self, mpin_id: bytes):
        return self.row("SELECT * FROM keys WHERE mpin_id = ?", mpin_id)

    def wrong(self, mpin_id: bytes) -> int:
        """The tries after the last right one. A try without a verdict counts as wrong until it has one."""
        return self.row(
            "SELECT count(*) FROM tries WHERE mpin_id = ?1 AND number > (SELECT coalesce(max(number), 0) FROM tries"
            " WHERE mpin_id = ?1 AND is_right = 1)", mpin_id)[0]

    def is_blocked(self, mpin_id: bytes) -> bool:
        return self.wrong(mpin_id) >= WRONG_TRIES

    def try_(self, mpin_id: bytes, digest: bytes, verify, claim=None, accept=None):
        """True or False: the signature is right or wrong; None: the key is blocked, by this one or before.

        The try is on disk before `verify` runs. The same try again gets the same verdict; one that a kill left without
        a verdict is verified again. `claim` may refuse before the count, `accept` comes with a right verdict, in one
        transaction each. The lock is held all the time: tries at once are counted and decided one after the other.
        NotCounted is raised if the try cannot be written.
        """
        find = lambda: self.row("SELECT is_right FROM tries WHERE mpin_id = ? AND digest = ?", mpin_id, digest)
        with self.lock:
            try:
                with self.transaction() as db:
                    seen = find()
                    if claim:
                        claim(db, seen is not None)
                    if seen is None:
                        if self.is_blocked(mpin_id):
                            return None
                        db.execute("INSERT INTO tries (mpin_id, digest) VALUES (?, ?)", (mpin_id, digest))
            except sqlite3.OperationalError as error:
                # Looked for, since a commit can fail at its end, and the same try may have come before.
                if find() is None:
                    raise NotCounted(*error.args) from error
                raise
            is_right = seen["is_right"] if seen else None
            if is_right is None:
                is_right = verify()
                with self.transaction() as db:
                    db.execute("UPDATE tries SET is_right = ? WHERE mpin_id = ? AND digest = ?",
                               (is_right, mpin_id, digest))
                    if is_right and accept:
                        accept(db)
            return True if is_right else None if self.is_blocked(mpin_id) else False

    def tries(self, user=None) -> list:
        rows = self.connection.execute(
            "SELECT mpin_id, user, scope, enrolled FROM keys WHERE ?1 IS NULL OR user = ?1 ORDER BY rowid",
            (user,)).fetchall()
        return [{"mpinId": row["mpin_id"].hex(), "user": row["user"], "scope": row["scope"],
                 "enrolled": bool(row["enrolled"]), "wrong": self.wrong(row["mpin_id"]),
                 "blocked": self.is_blocked(row["mpin_id"])} for row in rows]
