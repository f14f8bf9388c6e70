# SPDX-License-Identifier: Apache-2.0
"""Files, timers, locks and settings of unmodified programs: each moves there and back with the process, or is refused
before the pause by name. One program after the other on one cluster. Needs root and a CRIU that works."""
import os
import pathlib
import subprocess
import sys

from adopting import needs_criu
from cluster import BIN, ClusterTest
from waiting import eventually

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "programs" / "files_job.py"
PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
MOVED = ("timers", "settings", "own-proc", "grows-r", "grows-w", "grows-a+", "temporary")
REFUSED = {"flock": "is locked for writing (flock) by process", "lockf": "(fcntl or lockf)", "other-proc": "/statm, which describes"}
MISSING = "does not exist at the target"
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

    def test_moved_programs_keep_their_files_and_state(self):
        for kind in MOVED:
            self.start(kind)
            for node in ("node-b", "node-a"):
                with self.subTest(kind=kind, to=node):
                    report = self.cluster.migrate(self.name_of(kind), node)
                    self.assertEqual((report["result"], report["verified"]), ("done", True), report)
                    self.goes_on(kind)
            self.stop(kind)

    def test_programs_that_cannot_move_are_refused_before_the_pause(self):
        for kind, reason in REFUSED.items():
            self.start(kind)
            with self.subTest(kind=kind):
                refused = self.cluster.run("migrate", self.name_of(kind), "--to", "node-b")
                self.assertEqual(refused.returncode, 5, refused.stdout + refused.stderr)
                self.assertIn(reason, refused.stdout + refused.stderr)
                self.goes_on(kind)
            self.stop(kind)


class OtherFiles(ClusterTest):
    """node-b's agent sees another folder under the same path, as on another machine. Every look at a move asks it."""
    nodes = 3

    @classmethod
    def setUpClass(cls):
        needs_criu()

    def setUp(self):
        super().setUp()
        self.folder = self.cluster.shared / "data"
        self.folder.mkdir()
        (self.cluster.home / "data-of-b").mkdir()
        (self.folder / "gpu.log").touch()

    def give_other_files(self, node):
        """Its agent starts again, with an empty folder in the place of the jobs' one."""
        config = self.cluster.home / "nodes" / node / "agent.toml"
        pid = next(pid for pid, command in self.cluster.processes().items()
                   if "gpumigrate-agent" in command and str(config) in command)
        environment = dict(entry.split("=", 1) for entry in
                           pathlib.Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in entry)
        self.cluster.kill(str(config))
        other = self.cluster.home / "data-of-b"
        shell = f"mount --bind '{other}' '{self.folder}' && exec '{BIN}/gpumigrate-agent' --config '{config}'"
        agent = subprocess.Popen(["unshare", "--mount", "sh", "-c", shell], env=environment, cwd="/",
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(agent.wait)
        self.addCleanup(agent.kill)
        eventually(lambda: all(node["state"] == "ready" for node in self.cluster.json("nodes")), "all nodes are ready")

    def test_dry_run_and_move_both_query_the_target(self):
        self.give_other_files("node-b")
        self.cluster.start("job", PYTHON, PROGRAM, "grows-a+", self.folder / "gpu.log", way=())
        self.cluster.wait_for_line("job", r"^step 5\b")
        for command in (("migrate", "job", "--to", "node-b", "--dry-run"), ("migrate", "job", "--to", "node-b")):
            said = self.cluster.run(*command)
            self.assertEqual(said.returncode, 5, said.stdout + said.stderr)
            self.assertIn(f"/data/gpu.log {MISSING}", " ".join((said.stdout + said.stderr).split()))
        drain = self.cluster.json("drain", "node-a", "--dry-run")
        self.assertEqual(drain["jobs"][0]["to"], "node-c:0", drain)
        between = self.cluster.json("doctor", "--job", "job")["between_nodes"]
        self.assertTrue(between["possible"], between)
        found = {target["node"]: target["reason"] for target in between["targets"]}
        self.assertIn(MISSING, found["node-b"])
        self.assertIsNone(found["node-c"])
        self.cluster.call("cordon", "node-c")
        drain = self.cluster.run("drain", "node-a", "--dry-run")
        self.assertIn(MISSING, " ".join(drain.stdout.split()))
        self.assertNotIn("would move to", drain.stdout)
        self.cluster.call("uncordon", "node-c")
        self.assertEqual(self.cluster.migrate("job", "node-c")["result"], "done")
