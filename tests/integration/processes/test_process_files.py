# SPDX-License-Identifier: Apache-2.0
"""Files, timers, locks and settings of unmodified programs: each moves there and back with the process, or is refused
before the pause by name. One program after the other on one cluster. Needs root and a CRIU that works."""
import os
import pathlib
import subprocess
import sys

from adopting import needs_criu
from cluster import ClusterTest

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "programs" / "files_job.py"
PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
MOVED = ("timers", "settings", "own-proc", "grows-r", "grows-w", "grows-a+", "temporary")
REFUSED = {"flock": "is locked for writing (flock) by process", "lockf": "(fcntl or lockf)", "other-proc": "/statm, which tells of"}
APPENDING = 'while :; do for file; do echo other >>"$file"; done; sleep 0.005; done'


class ProcessFiles(ClusterTest):

    @classmethod
    def setUpClass(cls):
        needs_criu()

    def setUp(self):
        super().setUp()
        for kind in MOVED:
            self.file_of(kind).touch()
        growing = [str(self.file_of(kind)) for kind in MOVED if kind.startswith("grows")]
        writer = subprocess.Popen(["sh", "-c", APPENDING, "sh", *growing], stderr=subprocess.DEVNULL)
        self.addCleanup(writer.wait)
        self.addCleanup(writer.kill)

    def file_of(self, kind):
        return self.cluster.shared / f"file-{kind}"

    @staticmethod
    def name_of(kind):
        return kind.replace("+", "-plus")

    def start(self, kind):
        self.cluster.start(self.name_of(kind), PYTHON, str(PROGRAM), kind, str(self.file_of(kind)), way=())
        self.goes_on(kind)

    def stop(self, kind):
        self.cluster.call("stop", self.name_of(kind), "--grace", "1s")

    def goes_on(self, kind, more=5):
        steps = self.cluster.log(self.name_of(kind)).count("step ")
        found = self.cluster.wait_for_line(self.name_of(kind), rf"^step {steps + more}\b|WRONG.*|.*Error.*").group(0)
        self.assertTrue(found.startswith("step"), found)

    def test_what_moves_is_as_it_was(self):
        for kind in MOVED:
            self.start(kind)
            for node in ("node-b", "node-a"):
                with self.subTest(kind=kind, to=node):
                    report = self.cluster.migrate(self.name_of(kind), node)
                    self.assertEqual((report["result"], report["verified"]), ("done", True), report)
                    self.goes_on(kind)
            self.stop(kind)

    def test_what_does_not_move_is_refused_before_the_pause(self):
        for kind, reason in REFUSED.items():
            self.start(kind)
            with self.subTest(kind=kind):
                refused = self.cluster.run("migrate", self.name_of(kind), "--to", "node-b")
                self.assertEqual(refused.returncode, 5, refused.stdout + refused.stderr)
                self.assertIn(reason, refused.stdout + refused.stderr)
                self.goes_on(kind)
            self.stop(kind)
