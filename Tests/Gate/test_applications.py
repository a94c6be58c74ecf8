#!/usr/bin/env python3
"""What the gate leaves out: a copy of the checkout, with programs in place of make and Swift that note what they are asked for."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

MAKE = """#!/bin/sh
echo "$2" >>"$CALLS"
[ "$2" != "$RED" ]
"""
SWIFT = """#!/bin/sh
echo "Swift version $VERSION"
"""


class Applications(unittest.TestCase):
    # Git without the settings of this host and its user.
    GIT = {"PATH": os.environ["PATH"], "HOME": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.top = pathlib.Path(cls.temporary.name)
        cls.copy = cls.top / "checkout"
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
        for name in sorted(set(listed.stdout.decode().split("\0"))):
            if name and (ROOT / name).is_file():
                (cls.copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, cls.copy / name)
        (cls.copy / "Tests/green.txt").unlink(missing_ok=True)
        cls.git("init", "--quiet")
        cls.git("add", "--all")
        cls.git("-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--message", "all")
        programs = cls.top / "programs"
        programs.mkdir()
        for name, text in [("make", MAKE), ("swift", SWIFT)]:
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        cls.environment = cls.GIT | {
            "PATH": f"{programs}:{os.environ['PATH']}", "CALLS": str(cls.top / "calls"), "VERSION": "6.3"}

    def setUp(self):
        self.git("reset", "--quiet", "--hard")
        self.git("clean", "--quiet", "--force", "-d")
        (self.copy / "Package.resolved").write_text('{"pins": [{"identity": "swift-log", "state": {"version": "1.0.0"}}]}')

    @classmethod
    def git(cls, *arguments):
        subprocess.run(["git", *arguments], cwd=cls.copy, env=cls.GIT, check=True)

    def run_checks(self, *arguments, **variables):
        """The checks that ran, the output, and the exit status."""
        calls = self.top / "calls"
        calls.write_text("")
        done = subprocess.run(
            ["Scripts/applications", *arguments], cwd=self.copy, env=self.environment | variables, capture_output=True, text=True)
        self.assertNotIn("Traceback", done.stderr)
        # They run beside each other.
        return sorted(calls.read_text().split()), done.stdout + done.stderr, done.returncode

    def listed(self, **variables):
        """What would run, with the groups that have changed, and what would be left out."""
        _, output, status = self.run_checks("--list", **variables)
        self.assertEqual(status, 0, output)
        runs = re.findall(r"^== (\S+): runs, (?:changed since it was green: )?(.*)$", output, re.MULTILINE)
        return dict(runs), sorted(re.findall(r"^-- (\S+): left out, nothing has changed since it was green: ", output, re.MULTILINE))

    def make_green(self):
        ran, output, status = self.run_checks()
        self.assertEqual(status, 0, output)
        self.git("add", "Tests/green.txt")
        return ran

    def change(self, name):
        path = self.copy / name
        path.write_bytes(path.read_bytes() + b"\n")

    def test_what_is_green_is_left_out_until_an_input_changes(self):
        names = self.make_green()
        self.assertGreater(len(names), 15)
        self.assertEqual(self.listed(), ({}, names))
        self.assertEqual(self.run_checks()[0], [])

        # A commit changes nothing, nor does a file that no check stands on.
        self.change("LICENSE")
        self.assertEqual(self.listed()[0], {})

        everything_of_sources = {"release", "deb-test", "systemd-test", "without-traits"}
        for file, expected in {
            "Examples/ContractSigning/README.md": {"contracts": "folder", "contracts-tests": "folder", "docs": "pages"},
            "Examples/SplitKeySigning/authority/mpin.py": {"split-keys": "folder", "split-keys-tests": "folder"},
            "Examples/Plugins/openbao/run": {"openbao-plugin": "folder"},
            "Benchmarks/run": {"benchmarks": "folder"},
            "Documentation/Tokens.md": {"docs": "pages"},
            "Documentation/Embedding.md": {"docs": "pages", "service-by-the-page": "folder", "service-hummingbird": "folder", "service-grpc": "folder"},
            "Scripts/docs": {"docs": "scripts"},
            "Scripts/debian/control": {"deb-test": "scripts", "systemd-test": "scripts"},
            "Scripts/demo": {"release": "scripts", "demo-registration": "folder"},
            "Tests/TestSupport/TestKey.swift": {"release": "tests"},
            "Documentation/Interfaces/Signing.txt": {
                "docs": "pages", "contracts-tests": "symbols", "split-keys-tests": "symbols", "benchmarks": "symbols"},
        }.items():
            with self.subTest(file):
                self.change(file)
                self.assertEqual(self.listed()[0], expected)
                self.setUpAgain()
        # A room: what links it, and no tests of applications. The command's terminal is none of the services'.
        self.change("Sources/Terminal/" + next((self.copy / "Sources/Terminal").glob("*.swift")).name)
        runs = set(self.listed()[0])
        self.assertGreaterEqual(runs, everything_of_sources | {"contracts", "split-keys", "openbao-plugin"})
        self.assertTrue(runs.isdisjoint({"mutual-tls", "service-by-the-page", "contracts-tests", "docs"}), runs)
        self.setUpAgain()
        # A new file, before it is in git.
        (self.copy / "Plugins/PEMFileProvider/New.swift").write_text("")
        self.assertGreaterEqual(set(self.listed()[0]), everything_of_sources | {"mutual-tls", "contracts"})
        self.setUpAgain()
        # Other versions of what it is built of, or with.
        self.assertEqual(set(self.listed(VERSION="6.4")[0]), set(names))
        resolved = self.copy / "Package.resolved"
        resolved.write_text(resolved.read_text().replace("1.0.0", "1.0.1"))
        self.assertEqual(set(self.listed()[0].values()), {"pins"})

    def setUpAgain(self):
        self.git("checkout", "--quiet", ".")
        self.git("clean", "--quiet", "--force", "-d")

    def test_a_red_check_is_not_noted_and_the_others_run(self):
        ran, output, status = self.run_checks(RED="contracts")
        self.assertEqual(status, 1)
        self.assertIn("Red: contracts", output)
        self.assertIn("without-traits", ran)
        self.assertEqual(self.listed()[0], {"contracts": "not yet green"})
        self.assertEqual(self.run_checks()[0], ["contracts"])
        self.assertEqual(self.listed()[0], {})

    def test_the_gate_notes_nothing(self):
        ran, _, status = self.run_checks("--gate")
        self.assertEqual((len(ran) > 15, status, (self.copy / "Tests/green.txt").exists()), (True, 0, False))

    def test_everything_and_one_by_name(self):
        names = self.make_green()
        self.assertEqual(self.run_checks("--gate", FULL="1")[0], names)
        self.assertEqual(self.run_checks("contracts")[0], ["contracts"])
        for wrong in ["contract", "--all"]:
            ran, output, status = self.run_checks(wrong)
            self.assertEqual((ran, status), ([], 1))
            self.assertIn(f"unknown: {wrong}. The checks are release, docs,", output)

    def test_without_git_everything_runs(self):
        names = self.make_green()
        (self.copy / ".git").rename(self.top / "git")
        try:
            self.assertEqual(self.run_checks("--gate")[0], names)
        finally:
            (self.top / "git").rename(self.copy / ".git")

    def test_each_check_is_a_target_and_each_example_a_check(self):
        makefile = (ROOT / "Makefile").read_text()
        names = self.run_checks("--gate", FULL="1")[0]
        for name in names:
            self.assertRegex(makefile, rf"(?m)^(\S+ )*{name}:")
        scripts = [one for folder in ["Examples", "Tests"] for one in (ROOT / folder).glob("**/run*") if one.is_file() and not one.suffix
                   and os.access(one, os.X_OK)]
        self.assertGreater(len(scripts), 8)
        for script in scripts:
            self.assertIn(f"{script.relative_to(ROOT)}\n", makefile)


if __name__ == "__main__":
    unittest.main()
