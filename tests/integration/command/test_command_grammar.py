# SPDX-License-Identifier: Apache-2.0
"""The command's grammar: a word that is missing or misspelt does nothing, help fits the terminal, errors have
the form that was asked for."""
import json
import os
import pty
import struct
import subprocess
import termios
import unittest
from fcntl import ioctl

from cluster import BIN, ClusterTest


def run(*arguments, **options):
    return subprocess.run([BIN / "gpumigrate", *arguments], capture_output=True, text=True, timeout=60,
                          env=dict(os.environ, GPUMIGRATE_HOME="/nonexistent"), **options)


def run_in_terminal(columns, *arguments):
    """The output of a command in a terminal of so many columns."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen([BIN / "gpumigrate", *arguments], stdin=theirs, stdout=theirs, stderr=theirs):
        os.close(theirs)
        text = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the peer was closed
                break
            if not piece:
                break
            text += piece
    os.close(ours)
    return text.decode().replace("\r\n", "\n")


class Words(unittest.TestCase):
    def refused(self, *arguments, contains):
        result = run(*arguments)
        self.assertEqual(result.returncode, 64, result)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertIn(contains, result.stderr)

    def test_help_is_printed(self):
        bare = run()
        self.assertEqual(bare.returncode, 64)
        self.assertEqual(bare.stderr, "")
        self.assertIn("migrate", bare.stdout)
        for arguments in (["help"], ["--help"]):
            result = run(*arguments)
            self.assertEqual((result.returncode, result.stdout, result.stderr), (0, bare.stdout, ""))
        one = run("help", "migrate")
        self.assertEqual((one.returncode, one.stdout), (0, run("migrate", "--help").stdout))
        self.assertIn("--max-downtime TIME", one.stdout)
        self.assertIn("gpumigrate policy test", run("help", "policy", "test").stdout)
        self.assertEqual(run("local").returncode, 64)
        self.assertIn("up", run("local").stdout)

    def test_version_is_printed_without_a_coordinator(self):
        result = run("--version")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"^gpumigrate \d+\.\d+\.\d+\n$")

    def test_misspelled_words_get_a_suggestion(self):
        self.refused("jbos", contains="did you mean jobs?")
        self.refused("local", "dwon", contains="did you mean down?")
        self.refused("migrate", "hot", "--too", "node-b", contains="did you mean --to?")
        self.refused("jobs", "-o", "jsno", contains="did you mean json?")
        self.refused("help", "migrat", contains="did you mean migrate?")
        self.refused("frobnicate", contains='there is no command "frobnicate"')

    def test_missing_arguments_are_reported_by_name(self):
        self.refused("migrate", contains="JOB is missing")
        self.refused("protect", "hot", contains="--every TIME is missing")
        self.refused("migrate", "hot", "--to", contains="--to needs a value (PLACE)")
        self.refused("migrate", "hot", "--reason", "--dry-run", contains="the option --dry-run follows")

    def test_help_fits_the_terminal(self):
        for columns in (60, 80, 200):
            for command in ([], ["migrate"], ["run"], ["drain"], ["restore"], ["policy", "test"]):
                text = run_in_terminal(columns, "help", *command)
                self.assertGreater(text.count("\n"), 5)
                self.assertEqual([line for line in text.split("\n") if len(line) > columns], [])
                for word in ("INT", "TEXT", "UINT", "FLOAT", "REQUIRED", "Excludes", "["):
                    self.assertNotIn(word, text.replace("[OPTIONS]", "").replace("[COMMAND]", "")
                                     .replace("[ARGUMENT...]", "").replace("[COMMAND...]", ""))
        self.assertIn("1 to 64", run("help", "drain").stdout)

    def test_errors_are_printed_as_json_on_request(self):
        for arguments, code, exit_code in ((["jobs", "-o", "json"], "unavailable", 5),
                                           (["-o", "json", "jbos"], "usage", 64),
                                           (["migrate", "--output=json", "hot", "--to", ""], "usage", 64),
                                           (["run", "-ojson", "--", "/bin/true"], "unavailable", 5),
                                           (["local", "status", "-o", "json"], "unavailable", 5)):
            result = run(*arguments)
            self.assertEqual((result.returncode, result.stdout), (exit_code, ""), result)
            error = json.loads(result.stderr)["error"]
            self.assertEqual((error["code"], error["exit_code"]), (code, exit_code))
            self.assertEqual(error["message"].count("\n"), 0)
            self.assertEqual(result.stderr.count("\n"), 1)

    def test_output_that_cannot_be_written_is_an_error(self):
        for arguments in (["help"], ["--version"], ["policy", "test", "--xid", "79"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                result = subprocess.run([BIN / "gpumigrate", *arguments], stdout=full, stderr=subprocess.PIPE,
                                        text=True, timeout=60, check=False)
            self.assertEqual(result.returncode, 1, arguments)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
            self.assertIn("Cannot write to standard output", result.stderr)


class EmptyValues(ClusterTest):
    def test_an_empty_value_is_refused_without_an_effect(self):
        cluster = self.cluster
        cluster.start("hot", "hotset", "--bytes", "4MiB", "--hot", "4%", "--step-ms", "10", "--seed", "1",
                      "--pattern", "stride", "--steps", "1000000", "--print-every", "1")
        cluster.wait_for_line("hot", r"^step 1\b")
        for arguments in (["migrate", "hot", "--to", ""], ["migrate", "hot", "--to="], ["migrate", "--to=", "hot"],
                          ["stop", ""], ["drain", ""], ["restore", "hot", "--to", ""], ["suspend", "hot", "--to", ""],
                          ["protect", "hot", "--every", "30s", "--to", ""], ["cordon", ""],
                          ["run", "--node", "", "--", "/bin/true"], ["run", "--name", "", "--", "/bin/true"],
                          ["run", "--env", "", "--", "/bin/true"]):
            result = cluster.call(*arguments, exits=(64,))
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
            self.assertIn("is empty; is a variable unset?", result.stderr)
        job = cluster.job("hot")
        self.assertEqual((job["state"], job["incarnation"]), ("running", 1))
        self.assertEqual((cluster.json("migrations"), cluster.json("drains"), len(cluster.json("jobs"))), ([], [], 1))
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = subprocess.run([BIN / "gpumigrate", "jobs"], stdout=full, stderr=subprocess.PIPE, text=True,
                                    env=cluster.environment, timeout=60, check=False)
        self.assertEqual(result.returncode, 1)
        cluster.call("stop", "hot")


if __name__ == "__main__":
    unittest.main()
