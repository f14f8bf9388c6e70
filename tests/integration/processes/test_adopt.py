# SPDX-License-Identifier: Apache-2.0
"""`adopt`: a CUDA process that was started without gpumigrate becomes a job and is moved by stop-and-copy,
between two GPUs of its node and between nodes. What needs root and CRIU is skipped without."""
import os
import pathlib
import socket
import subprocess
import sys
import unittest

from adopting import HandStarted, error_of, needs_criu
from cluster import ClusterTest, network_of
from waiting import eventually


PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
PYTHON_JOB = pathlib.Path(__file__).resolve().parents[1] / "programs" / "python_job.py"


class Adopting(ClusterTest):
    def start(self, steps, **where):
        self.training = HandStarted(self.cluster, steps, **where)
        self.addCleanup(self.training.end)
        self.training.wait_for_step(3)
        return self.training

    def adopt(self, *arguments, exits=(0,)):
        return self.cluster.json("adopt", *self.training.name, *arguments, exits=exits)

    def check_report(self, report, turn):
        self.assertEqual(report["result"], "done", report)
        self.assertTrue(report["verified"], report)
        self.assertEqual(report["incarnation"], turn + 2)
        pieces = report["downtime_breakdown_ms"]
        self.assertAlmostEqual(sum(pieces.values()), report["downtime_ms"],
                               delta=0.02 * report["downtime_ms"], msg=report)
        self.assertGreater(pieces["context"], 0, report)
        # The bytes of the context's save. The pause would not include this save if `gpumigrate run` had
        # started the job.
        self.assertGreaterEqual(report["context_bytes"], 2 << 20, report)
        saved = report["under_run"]
        self.assertEqual(saved["device_bytes"], report["context_bytes"], report)
        self.assertGreater(saved["device_ms"], 0, report)
        self.assertLess(saved["bound_ms"], report["downtime_ms"], report)


class BetweenGpus(Adopting):
    nodes, gpus = 1, 2

    def test_adopted_process_moves_between_two_gpus_of_a_node(self):
        training = self.start(1500, gpu=1)
        job = self.adopt("--name", "job")
        self.assertEqual((job["mode"], job["gpu"], job["name"]), ("adopted", 1, "job"), job)
        self.assertEqual(job["ranks"][0]["pid"], training.pid)
        for turn in range(6):
            self.check_report(self.cluster.migrate("job", f"node-a:{turn % 2}"), turn)
            job = self.cluster.job("job")
            self.assertEqual((job["gpu"], job["ranks"][0]["pid"], job["mode"]),
                             (turn % 2, training.pid, "adopted"))
        training.let_end()
        self.assertEqual(training.process.wait(), 0, "its own parent sees its end")
        # The process is not a child of gpumigrate, which therefore cannot know how it ended.
        result = self.cluster.run("wait", "job")
        self.assertEqual(result.returncode, 6, result)
        job = self.cluster.job("job")
        self.assertEqual((job["state"], job["exit_code"]), ("exited", None))
        self.assertIn("parent", job["reason"])
        training.check_end(self)

    def test_stop_ends_an_adopted_process(self):
        training = self.start(100000)
        self.adopt("--name", "job")
        self.cluster.call("stop", "job", "--grace", "5s")
        self.assertNotEqual(training.process.wait(timeout=60), 0)
        self.assertEqual(self.cluster.job("job")["state"], "exited")

    def test_adopted_job_is_not_protected(self):
        self.start(100000)
        self.adopt("--name", "job")
        for options in ((), ("--dry-run",)):
            refused = self.cluster.call("protect", "job", "--every", "10m", *options, exits=(5,))
            self.assertIn("was adopted, and has no images", refused.stderr)
        self.assertIsNone(self.cluster.job("job")["protection"])

    def test_restarted_agent_finds_the_adopted_process(self):
        training = self.start(1500)
        self.adopt("--name", "job")
        self.cluster.kill("gpumigrate-agent")
        self.cluster.up()
        self.check_report(self.cluster.migrate("job", "node-a:1"), 0)
        training.let_end()
        self.assertEqual(training.process.wait(), 0)
        training.check_end(self)


class BetweenNodes(Adopting):
    @classmethod
    def setUpClass(cls):
        needs_criu()

    def test_job_moves_there_and_back(self):
        training = self.start(1500)
        self.adopt("--name", "job")
        for turn in range(6):
            node = "node-b" if turn % 2 == 0 else "node-a"
            report = self.cluster.migrate("job", node)
            self.check_report(report, turn)
            self.assertGreater(report["downtime_breakdown_ms"]["host"], 0, report)
            job = self.cluster.job("job")
            self.assertEqual((job["node"], job["mode"], job["state"]), (node, "adopted", "running"), job)
            # The source's process exits shortly after the move.
            eventually(lambda: len(self.instances()) == 1, "the job has one process")
            if turn == 0:
                self.assertEqual(training.process.wait(timeout=60), -9, "the original is gone")
        training.let_end()
        self.cluster.call("wait", "job")  # the keeper is now the parent of the process, so the exit code is
                                          # known
        self.assertEqual(self.cluster.job("job")["exit_code"], 0)
        training.check_end(self)

    def instances(self):
        return [pid for pid, command in self.cluster.processes().items()
                if "/charlm-plain" in command.split(" ")[0]]

    def test_open_connection_is_named_and_nothing_moves(self):
        with network_of(self.cluster.pids("nodes/node-a/agent.toml")[0]):
            server = socket.create_server(("127.0.0.1", 0))
            port = server.getsockname()[1]
            connection = socket.create_connection(("127.0.0.1", port))
        with server:
            self.addCleanup(connection.close)
            training = self.start(1200, pass_fds=(connection.fileno(),))
            self.adopt("--name", "job")
            result = self.cluster.run("migrate", "job", "--to", "node-b")
            self.assertEqual(result.returncode, 5, result)
            self.assertIn(f":{port}", result.stderr + result.stdout)
            self.assertEqual(self.cluster.job("job")["state"], "running")
        training.let_end()
        self.assertEqual(training.process.wait(), 0)
        training.check_end(self)


    def test_forked_children_that_hold_the_driver_are_named_and_nothing_moves(self):
        """Without the shim nobody closes what they inherit."""
        self.start(0, command=(PYTHON, PYTHON_JOB, "late", "100000"))
        self.adopt("--name", "job")
        result = self.cluster.run("migrate", "job", "--to", "node-b")
        self.assertEqual(result.returncode, 5, result)
        self.assertRegex(result.stdout + result.stderr, r"process \d+ \(python3[.\d]*\) has the GPU driver's /\S+ open, "
                         f"but the driver's checkpoint closes driver files only in process {self.training.pid}")
        self.assertEqual(self.cluster.job("job")["state"], "running")


class DryRuns(Adopting):
    @classmethod
    def setUpClass(cls):
        needs_criu()

    def test_dry_run_and_move_are_refused_for_the_same_reason(self):
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        self.addCleanup(os.close, writing)
        self.start(100000, pass_fds=(writing,))
        self.adopt("--name", "job")
        dry = self.cluster.run("migrate", "job", "--to", "node-b", "--dry-run")
        real = self.cluster.run("migrate", "job", "--to", "node-b")
        self.assertEqual((dry.returncode, real.returncode), (5, 5), (dry, real))
        reason = f"is a pipe to {pathlib.Path(f'/proc/{os.getpid()}/comm').read_text().strip()} (process {os.getpid()})"
        self.assertIn(reason, dry.stdout + dry.stderr)
        self.assertIn(reason, real.stdout + real.stderr)
        logs = self.cluster.call("logs", "job")
        self.assertEqual(logs.stdout, "")
        self.assertIn("was adopted and has no log: its output still goes where it went before", logs.stderr)

    def test_dry_run_names_the_mode_that_the_move_has(self):
        self.start(100000)
        self.adopt("--name", "job")
        self.assertEqual(self.cluster.json("migrate", "job", "--to", "node-b", "--dry-run")["strategy"], "stop-copy")


class Refusals(Adopting):
    nodes = 1

    def refused(self, pid, word, *arguments):
        result = self.cluster.run("adopt", pid, *arguments)
        self.assertEqual(result.returncode, 5, result)
        self.assertIn(word, error_of(result))

    def test_each_refusal_has_its_reason(self):
        with subprocess.Popen(["sleep", "1000"]) as ended:
            ended.kill()
        self.refused(ended.pid, "no process")
        with subprocess.Popen(["sleep", "1000"]) as sleeper:
            self.addCleanup(sleeper.kill)
            self.refused(sleeper.pid, "not a CUDA process")
            sleeper.kill()
        training = self.start(100000)
        self.refused(training.pid, "no node", "--node", "node-z")
        self.adopt("--name", "job")
        self.refused(training.pid, "already")
        self.cluster.start("other", "charlm-plain", "--params", "60000", "--steps", "100000", "--print-every",
                           "1", way=())
        self.cluster.wait_for_line("other", r"^step \d+")
        ours = next(pid for pid, command in self.cluster.processes().items()
                    if "/charlm-plain" in command.split(" ")[0] and pid != training.pid)
        self.refused(ours, "already")
        self.assertEqual([job["name"] for job in self.cluster.json("jobs")], ["job", "other"],
                         "a refusal leaves no job")
