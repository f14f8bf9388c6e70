# SPDX-License-Identifier: Apache-2.0
"""Python programs as they are (tests/integration/programs/python_job.py): with threads, worker processes, locks,
shared memory, children and timers. Each moves to another node and back, and once to another GPU of its node; or is
refused with what stands in its way."""
import os
import pathlib
import re
import sys
import unittest

from cluster import ClusterTest, run_unmoved

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "programs" / "python_job.py"
# The system's own: hosts (tests/hosts) have no home folder with another.
PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
STEPS = 1500
# Each page that left before a pause is compared at the barrier.
os.environ["GPUMIGRATE_COMPARE_HOST_MEMORY"] = "1"


class PythonTest(ClusterTest):
    gpus = 2

    def run_kind(self, kind):
        expected = run_unmoved(PYTHON, str(PROGRAM), kind, str(STEPS))
        self.cluster.start("job", PYTHON, str(PROGRAM), kind, str(STEPS), way=())
        self.cluster.wait_for_line("job", r"^step \d+")
        for place in ("node-b:0", "node-a:1", "node-a:0"):
            report = self.cluster.migrate("job", place, "--live")
            self.assertEqual((report["result"], report["verified"]), ("done", True), report)
            self.cluster.wait_for_line("job", r"^step \d+")
        self.assertEqual(self.cluster.finish("job"), expected)
        self.assert_steps_in_order(self.cluster.log("job"))


class PythonJobs(PythonTest):
    def test_plain(self):
        self.run_kind("plain")

    def test_eight_threads(self):
        self.run_kind("threads")

    def test_pool(self):
        self.run_kind("pool")

    def test_subprocess(self):
        self.run_kind("subprocess")

    def test_signals_and_timers(self):
        self.run_kind("signals")

    def test_bound_sockets(self):
        log = next((self.cluster.home / "nodes/node-a").glob("*agent.log")).read_text()
        version = re.search(r"processes can be moved between nodes: criu \S+ version (\d+)\.(\d+)", log)
        if version and tuple(map(int, version.groups())) < (4, 2):
            self.skipTest(f"CRIU {version.group(1)}.{version.group(2)} may not save sockets: tools/criu install brings 4.2")
        self.run_kind("listen")


class SharedByName(PythonTest):
    """Memory in /dev/shm that has a name: both nodes see it, as they are on one machine."""

    def test_forked_workers(self):
        self.run_kind("fork")

    def test_workers_that_were_forked_after_the_first_call_of_the_driver(self):
        self.run_kind("late")

    def refuse_kind(self, kind, why="/dev/shm/sem.* does not travel"):
        """Between nodes; to another card of the node it moves."""
        expected = run_unmoved(PYTHON, str(PROGRAM), kind, str(STEPS))
        self.cluster.start("job", PYTHON, str(PROGRAM), kind, str(STEPS), way=())
        self.cluster.wait_for_line("job", r"^step \d+")
        self.assertRegex(self.cluster.call("doctor", "--job", "job").stdout,
                         rf"(?s)yes +move to another GPU of its node\nno +move to another node\n\nTo move to another node:\n.*{why}")
        refused = self.cluster.run("migrate", "job", "--to", "node-b", "--live")
        self.assertEqual(refused.returncode, 5, refused.stderr)
        self.assertRegex(refused.stdout + refused.stderr, why)
        report = self.cluster.migrate("job", "node-a:1", "--live")
        self.assertEqual((report["result"], report["verified"]), ("done", True), report)
        self.assertEqual(self.cluster.finish("job"), expected)
        self.assert_steps_in_order(self.cluster.log("job"))

    def test_spawned_workers_are_refused_by_their_locks(self):
        self.refuse_kind("spawn")

    def test_child_that_only_asks_the_driver_is_named_and_is_no_rank(self):
        self.refuse_kind("asking", r"process \d+ \(\S+\) has the GPU driver's /\S+ open")

    def test_workers_of_a_fork_server_are_refused_by_their_locks(self):
        self.refuse_kind("forkserver")


if __name__ == "__main__":
    unittest.main()
