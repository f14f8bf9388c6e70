# SPDX-License-Identifier: Apache-2.0
"""An unmodified program that moves between nodes with its process: transparent mode with CRIU. Needs root
and a CRIU that works (tools/setup brings one); where the nodes report none, the tests are skipped with
their reason."""
import socket
import unittest

from cluster import EXAMPLES, ClusterTest, run_unmoved
from waiting import eventually

TRAINING = ["--params", "200000", "--seed", "3", "--print-every", "1", "--step-ms", "5"]


class ProcessMoves(ClusterTest):
    def setUp(self):
        super().setUp()
        self.cluster.start("probe", "charlm-plain", *TRAINING, "--steps", "100000", way=())
        self.cluster.wait_for_line("probe", r"^step \d+")
        plan = self.cluster.run("migrate", "probe", "--to", "node-b", "--dry-run")
        self.cluster.call("stop", "probe", "--grace", "0s")
        if plan.returncode != 0 and "host processes" in plan.stdout + plan.stderr:
            self.skipTest((plan.stdout + plan.stderr).strip())

    def start_training(self, steps):
        arguments = [*TRAINING, "--steps", str(steps)]
        expected = run_unmoved("charlm-plain", *arguments[:-4], *arguments[-2:])
        self.cluster.start("job", "charlm-plain", *arguments, way=())
        self.cluster.wait_for_line("job", r"^step \d+")
        return expected

    def process_of_the_job(self):
        """The source's ends a moment after the move has."""
        def found():
            return [pid for pid, command in self.cluster.processes().items()
                    if "/charlm-plain" in command.split(" ")[0]]
        return eventually(lambda: len(pids := found()) == 1 and pids, "the job has one process")[0]

    def test_process_moves_there_and_back_twenty_times(self):
        expected = self.start_training(3000)
        for turn in range(20):
            mode = "--live" if turn % 4 != 3 else "--stop-copy"
            report = self.cluster.migrate("job", "node-b" if turn % 2 == 0 else "node-a", mode)
            self.assertEqual(report["result"], "done", report)
            self.assertTrue(report["verified"], report)
            self.assertEqual(report["incarnation"], turn + 2)
            pieces = report["downtime_breakdown_ms"]
            self.assertAlmostEqual(sum(pieces.values()), report["downtime_ms"],
                                   delta=0.02 * report["downtime_ms"], msg=report)
            self.assertGreater(pieces["host"], 0, report)
            self.assertEqual(self.cluster.job("job")["node"], "node-b" if turn % 2 == 0 else "node-a")
            self.process_of_the_job()
        self.assertEqual(self.cluster.finish("job")["digest"], expected["digest"])
        steps = [line for line in self.cluster.log("job").split("\n") if line.startswith("step ")]
        self.assertEqual([int(line.split()[1]) for line in steps], list(range(1, 3001)))

    def test_open_connection_is_named_and_nothing_moves(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            self.cluster.call("run", "--detach", "--name", "job", "--node", "node-a", "--", "/bin/bash", "-c",
                              f"exec 7<>/dev/tcp/127.0.0.1/{port}; exec {EXAMPLES / 'charlm-plain'} --params 200000 "
                              "--steps 1500 --print-every 1")
            self.cluster.wait_for_line("job", r"^step \d+")
            result = self.cluster.run("migrate", "job", "--to", "node-b")
            self.assertEqual(result.returncode, 5, result)
            self.assertIn(f":{port}", result.stderr + result.stdout)
            self.assertEqual(self.cluster.job("job")["state"], "running")
            self.assertEqual(self.cluster.finish("job")["steps"], 1500)
