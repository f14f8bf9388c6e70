# SPDX-License-Identifier: Apache-2.0
"""Host memory leaves before the pause, and a program goes on at the target before it is there. It checks each MiB of
it again and again; the agent compares what left early with what the program has at its barrier. Needs root and a CRIU
that works."""
import json
import os
import pathlib
import re
import sys
import unittest

from adopting import needs_criu
from cluster import ClusterTest
from fault_points import Point
from waiting import eventually

MIB = 256
PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "programs" / "memory_job.py"
# The system's Python is used: hosts (tests/hosts) have no home folder that contains another Python.
PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable


os.environ["GPUMIGRATE_COMPARE_HOST_MEMORY"] = "1"


class ProcessMemory(ClusterTest):
    @classmethod
    def setUpClass(cls):
        needs_criu()

    def start(self, *more):
        self.cluster.start("job", PYTHON, str(PROGRAM), str(MIB), *more, way=())
        self.cluster.wait_for_line("job", r"^step 5\b")

    def agent_log(self, node):
        return next((self.cluster.home / "nodes" / node).glob("*agent.log")).read_text()

    def check_steps(self, more):
        """All of the memory is read once in `more` steps."""
        steps = len(re.findall(r"^step", self.cluster.log("job"), re.M))
        self.cluster.wait_for_line("job", rf"^step {steps + more}\b")
        self.assert_steps_in_order(self.cluster.log("job"))

    def check_doctor(self, ability):
        """`doctor` reports the ability that a move has just used."""
        diagnosis = json.loads(self.cluster.run("doctor", "-o", "json").stdout)
        (found,) = [found for found in diagnosis["can"] if found["what"] == ability]
        self.assertEqual(found["answer"], "yes", diagnosis)

    def test_second_move_waits_for_the_memory_of_the_first_move(self):
        """The second move waits for the memory of the first one. Pages go straight into what is sent."""
        self.start()
        for source, node in (("node-a", "node-b"), ("node-b", "node-a")):
            report = self.cluster.migrate("job", node)
            self.assertEqual((report["result"], report["verified"]), ("done", True), report)
            (lazy,) = re.findall(r"process restored: .* lazy_bytes (\d+)", self.agent_log(node))
            self.assertGreater(int(lazy), MIB * 9 // 10 << 20)
            (beside,) = re.findall(r"process dumped: .* bytes (\d+) packed", self.agent_log(source))
            self.assertLess(int(beside), MIB << 18, "these were written to files and copied")
            self.assertEqual(report["memory_follows_bytes"], int(lazy))
        for migration in self.cluster.json("migrations"):
            self.check_arrival(migration["id"])
        self.check_steps(2 * MIB)
        self.check_doctor("restore host memory of unmodified programs after the pause")

    def row(self, migration):
        return next(row for row in self.cluster.json("migrations") if row["id"] == migration)

    def check_arrival(self, migration):
        """The report has how long memory followed the program, and an event that it is there."""
        eventually(lambda: self.row(migration)["report"]["memory_follows_ms"], "all memory is at the target")
        events = [json.loads(line) for line in self.cluster.call("events", "-o", "json").stdout.splitlines()]
        arrived = [event for event in events if event["kind"] == "memory-arrived" and event["migration"] == migration]
        self.assertEqual(len(arrived), 1, arrived)
        self.assertIn("of host memory of job arrived at the target within", arrived[0]["text"])

    def test_progress_includes_host_memory_sent_before_the_pause(self):
        self.start()
        begun = self.cluster.json("migrate", "job", "--to", "node-b", "--bandwidth", "64MiB/s", "--detach")

        def quarter():
            row = self.row(begun["id"])
            self.assertTrue(row["open"], "it ended before its progress was seen")
            progress = row["progress"]
            return (progress and progress["total_bytes"] > MIB * 9 // 10 << 20 and progress["remaining_bytes"] > 0
                    and MIB << 18 < progress["done_bytes"] < progress["total_bytes"])
        eventually(quarter, "a quarter of the memory has left")
        eventually(lambda: not self.row(begun["id"])["open"], "the move has ended")
        self.assertEqual(self.row(begun["id"])["result"], "done")
        self.check_steps(2 * MIB)

    def copied_ahead(self, node):
        """Bytes that left before the pause, and in it: by process."""
        lines = re.findall(r"memory copied ahead: pid \d+ held_bytes (\d+) read_at_last_bytes (\d+)", self.agent_log(node))
        if not lines and "cannot track memory writes" in self.agent_log(node):
            self.skipTest("this kernel does not watch memory")
        return [tuple(map(int, line)) for line in lines]

    def test_host_memory_is_sent_before_the_pause(self):
        self.start()
        for source, node in (("node-a", "node-b"), ("node-b", "node-a")):
            report = self.cluster.migrate("job", node)
            self.assertEqual((report["result"], report["verified"]), ("done", True), report)
            held, at_last = max(self.copied_ahead(source))
            self.assertGreater(held, MIB * 9 // 10 << 20)
            self.assertLess(at_last, MIB << 18, "most of it left in the pause")
            self.check_steps(2 * MIB)
        self.check_doctor("copy host memory of unmodified programs before the pause")

    def test_memory_that_a_device_may_write_is_sent_in_the_pause(self):
        self.start("registered")
        report = self.cluster.migrate("job", "node-b")
        self.assertEqual((report["result"], report["verified"]), ("done", True), report)
        self.assertEqual(max(self.copied_ahead("node-a"))[0], 0)
        self.check_steps(2 * MIB)

    def test_stop_copy_sends_no_host_memory_before_the_pause(self):
        self.start()
        report = self.cluster.migrate("job", "node-b", "--stop-copy")
        self.assertEqual((report["result"], report["verified"]), ("done", True), report)
        self.assertEqual(self.copied_ahead("node-a"), [])
        self.check_steps(2 * MIB)

    def test_resumed_process_can_move_immediately(self):
        self.start()
        self.cluster.call("suspend", "job")
        self.cluster.call("resume", "job")
        report = self.cluster.migrate("job", "node-b" if self.cluster.job("job")["node"] == "node-a" else "node-a")
        self.assertEqual((report["result"], report["verified"]), ("done", True), report)
        self.check_steps(2 * MIB)

    def test_job_continues_at_its_source_if_the_lazy_page_server_is_killed(self):
        self.start()
        self.cluster.arm("lazy_pages", Point.MEMORY_FOLLOWS)
        result = self.cluster.run("migrate", "job", "--to", "node-b")
        self.assertTrue(self.cluster.fired("lazy_pages", Point.MEMORY_FOLLOWS))
        self.assertIn(result.returncode, (1, 3), result)
        self.assertEqual(self.cluster.job("job")["node"], "node-a")
        self.check_steps(2 * MIB)


if __name__ == "__main__":
    unittest.main()
