# SPDX-License-Identifier: Apache-2.0
"""stress, an unmodified program that allocates, frees, loads, captures and launches on many threads and
streams and checks all of its memory, moved in the middle of it: it must find nothing wrong, and end by itself
as if nothing had been."""
import os
import signal
import unittest

from cluster import ClusterTest

STRESS = ["--threads", "4", "--streams", "8", "--most-bytes", "16MiB", "--memory", "48MiB", "--print-every",
          "20", "--seconds", "0"]


class StressTest(ClusterTest):
    def start_stress(self, seed):
        self.cluster.start("job", "stress", *STRESS, "--seed", seed, node="node-a:0", way=())
        self.cluster.wait_for_line("job", r"^step \d+")

    def last_step(self):
        return max(int(line.split()[1]) for line in self.cluster.log("job").split("\n")
                   if line.startswith("step "))

    def move(self, target, turn):
        """One move, and steps of the program after it."""
        mode = "--live" if turn % 3 != 2 else "--stop-copy"
        report = self.cluster.migrate("job", target, mode)
        self.assertEqual(report["result"], "done", report)
        self.assertTrue(report["verified"], report)
        self.assertEqual(report["incarnation"], turn + 2)
        seen = self.last_step()
        with self.cluster.popen("logs", "job", "-f") as follower:
            try:
                self.assertTrue(any(line.startswith("step ") and int(line.split()[1]) > seen
                                    for line in follower.stdout))
            finally:
                follower.kill()

    def end_stress(self):
        processes = [pid for pid, command in self.cluster.processes().items()
                     if "/stress" in command.split(" ")[0]]
        self.assertEqual(len(processes), 1, self.cluster.processes())
        os.kill(processes[0], signal.SIGTERM)
        result = self.cluster.finish("job")
        self.assertEqual(result["errors"], 0, result)
        self.assertGreater(result["checks"], 0, result)
        self.assertEqual(result["left_out"], [], result)
        return result


class StressSwaps(StressTest):
    nodes, gpus = 1, 2

    def test_six_swaps_leave_no_error(self):
        self.start_stress(7)
        for turn in range(6):
            self.move(f"node-a:{1 - turn % 2}", turn)
        self.end_stress()


class StressMoves(StressTest):
    def test_three_moves_of_the_process_leave_no_error(self):
        self.start_stress(11)
        plan = self.cluster.run("migrate", "job", "--to", "node-b", "--dry-run")
        if plan.returncode != 0 and "host processes" in plan.stdout + plan.stderr:
            self.skipTest((plan.stdout + plan.stderr).strip())
        for turn in range(3):
            self.move("node-b" if turn % 2 == 0 else "node-a", turn)
        self.end_stress()
