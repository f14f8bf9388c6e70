# SPDX-License-Identifier: Apache-2.0
"""An unmodified program whose process stays and whose GPU changes (hot card swap): transparent mode on one
node."""
import json
import os
import select
import signal
import subprocess
import unittest

from cluster import BIN, COMMAND_LIMIT_S, ClusterTest, run_unmoved

TRAINING = ["--params", "200000", "--seed", "3", "--print-every", "1", "--step-ms", "5"]
FIRST_STEP = r"^step \d+"


class Swap(ClusterTest):
    nodes, gpus = 1, 2

    def start_training(self, steps):
        arguments = [*TRAINING, "--steps", str(steps)]
        expected = run_unmoved("charlm-plain", *arguments[:-4], *arguments[-2:])
        self.cluster.start("job", "charlm-plain", *arguments, node="node-a:0", way=())
        self.cluster.wait_for_line("job", FIRST_STEP)
        return expected

    def check_report(self, report, turn):
        self.assertEqual(report["result"], "done", report)
        self.assertTrue(report["verified"], report)
        self.assertEqual(report["incarnation"], turn + 2)
        pieces = report["downtime_breakdown_ms"]
        self.assertAlmostEqual(sum(pieces.values()), report["downtime_ms"],
                               delta=0.02 * report["downtime_ms"], msg=report)
        self.assertGreater(pieces["context"], 0, report)
        self.assertEqual(pieces["host"], 0, report)

    def test_the_process_continues_on_another_gpu_twenty_times(self):
        expected = self.start_training(2000)
        job = self.cluster.job("job")
        self.assertEqual((job["mode"], job["movable"], job["gpu"]), ("transparent", True, 0), job)
        process = job["ranks"][0]["pid"]
        for turn in range(20):
            mode = "--live" if turn % 4 != 3 else "--stop-copy"
            gpu = 1 - turn % 2
            self.check_report(self.cluster.migrate("job", f"node-a:{gpu}", mode), turn)
            job = self.cluster.job("job")
            self.assertEqual((job["gpu"], job["ranks"][0]["pid"]), (gpu, process), job)
        self.assertEqual(self.cluster.finish("job")["digest"], expected["digest"])

    def card(self, order):
        """Runs cudasim-ctl on the GPU that the job has moved to."""
        return subprocess.run([BIN / "cudasim-ctl", "--dir", self.cluster.home / "nodes/node-a/gpu",
                               "--device", "1", order],
                              check=True, capture_output=True, text=True).stdout

    def wedge_on_kill(self):
        self.card("wedge-on-kill")

    def is_hung(self):
        return "hung 1" in self.card("status")

    def check_next_job(self):
        arguments = [*TRAINING, "--steps", "50"]
        expected = run_unmoved("charlm-plain", *arguments)
        self.cluster.start("next", "charlm-plain", *arguments, node="node-a:1", way=())
        self.assertEqual(self.cluster.finish("next")["digest"], expected["digest"])

    def status_file(self, name):
        path, = (self.cluster.home / "nodes/node-a/jobs").glob("*/status.json")
        return json.loads(path.read_text())

    def test_stop_of_a_job_that_was_swapped_leaves_the_gpu_usable(self):
        """As on drivers where killing a process with a restored context hangs its GPU."""
        self.cluster.start("job", "charlm-plain", *TRAINING, "--steps", "100000", node="node-a:0", way=())
        self.cluster.wait_for_line("job", FIRST_STEP)
        self.cluster.migrate("job", "node-a:1")
        self.wedge_on_kill()
        self.cluster.call("stop", "job")
        self.cluster.call("wait", "job", exits=range(256))
        self.check_next_job()
        self.assertIn("context saved before a kill: job",
                      (self.cluster.home / "nodes/node-a/agent.log").read_text())

    def test_swapped_job_killed_by_its_keeper_leaves_the_gpu_usable(self):
        self.cluster.start("job", "charlm-plain", *TRAINING, "--steps", "100000", node="node-a:0", way=())
        self.cluster.wait_for_line("job", FIRST_STEP)
        self.cluster.migrate("job", "node-a:1")
        self.wedge_on_kill()
        self.cluster.kill("gpumigrate-agent")
        keeper, = self.cluster.pids("gpumigrate-keeper")
        process = os.pidfd_open(keeper)
        os.kill(keeper, signal.SIGTERM)
        self.assertTrue(select.select([process], [], [], COMMAND_LIMIT_S)[0], "the keeper does not end")
        os.close(process)
        self.assertFalse(self.is_hung())
        self.cluster.up()
        self.cluster.call("wait", "job", exits=range(256))
        status = self.status_file("job")
        self.assertEqual(status["last_save"], "its context was saved before the kill", status)
        self.assertIn("its context was saved before the kill",
                      (self.cluster.home / "nodes/node-a/agent.log").read_text())
        self.check_next_job()
