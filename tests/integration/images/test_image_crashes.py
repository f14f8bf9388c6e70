# SPDX-License-Identifier: Apache-2.0
"""The coordinator is killed at each record of a restore, and of a suspend: the job goes on, once, and ends
with the unmoved digest."""
import signal
import subprocess
import unittest

from cluster import BIN, run_unmoved
from waiting import eventually
from crashing import STEP_MS, TRAINING, CrashingTest
from fault_points import Point

POINTS = [("operation_durable", Point.COORDINATOR_OPERATION_DURABLE),
          ("instance_ended", Point.COORDINATOR_INSTANCE_ENDED),
          ("start_durable", Point.COORDINATOR_START_DURABLE), ("started", Point.COORDINATOR_STARTED)]
PARKED = ("parked_durable", Point.COORDINATOR_PARKED_DURABLE)


class CoordinatorDies(CrashingTest):
    gpus = 2

    def crash(self, number, *command):
        victims = self.daemons_of("coordinator")
        self.cluster.arm("coordinator", number)
        with self.cluster.popen(*command) as ordering:
            self.wait_until_fired("coordinator", number, ordering)
            self.wait_until_dead(victims)
            ordering.send_signal(signal.SIGTERM)
        self.cluster.up()

    def start_training(self):
        arguments = [*TRAINING, "--steps", "800"]
        self.expected = run_unmoved("charlm", *arguments)["digest"]
        self.cluster.start("job", "charlm", *arguments, "--step-ms", str(STEP_MS), node="node-a:0")
        self.cluster.wait_for_line("job", r"^step 20\b")

    def restore_through(self, number):
        self.start_training()
        self.cluster.call("snapshot", "job")
        self.crash(number, "restore", "job", "--accept-loss", "--to", "node-a:1")
        self.assertEqual(self.cluster.finish("job")["digest"], self.expected)
        self.assertEqual(self.cluster.job("job")["incarnation"], 2)
        ran = self.cluster.json("describe", "job")["instances"]
        self.assertEqual([i["incarnation"] for i in ran], [1, 2], ran)

    def test_job_is_parked_after_a_coordinator_crash_once_parked_is_durable(self):
        self.start_training()
        self.crash(624, "suspend", "job")
        self.assertEqual(self.cluster.job("job")["state"], "parked")
        self.cluster.call("resume", "job")
        self.assertEqual(self.cluster.finish("job")["digest"], self.expected)


    def started_without_an_answer(self):
        """The job runs on node-a from its image on node-b, and the coordinator that ordered it is dead."""
        self.start_training()
        self.cluster.call("suspend", "job", "--to", "node-b")
        victims = self.daemons_of("coordinator")
        self.cluster.arm("coordinator", Point.COORDINATOR_STARTED)
        with self.cluster.popen("resume", "job", "--to", "node-a") as ordering:
            self.wait_until_fired("coordinator", Point.COORDINATOR_STARTED, ordering)
            self.wait_until_dead(victims)
            ordering.send_signal(signal.SIGTERM)

    def started_instances(self):
        return [folder.name for folder in self.cluster.home.glob("nodes/*/jobs/j*.2.m*")]

    def test_started_job_continues_while_its_image_is_unreachable(self):
        self.started_without_an_answer()
        self.cluster.kill("nodes/node-b/")
        config = self.cluster.home / "coordinator/coordinator.toml"
        alone = subprocess.Popen([BIN / "gpumigrate-coordinator", "--config", config], env=self.cluster.environment, stderr=subprocess.DEVNULL)
        try:
            ended = ("running", "exited", "parked")
            eventually(lambda: self.cluster.run("jobs").returncode == 0 and self.cluster.job("job")["state"] in ended, "the restore has ended")
            self.assertNotEqual(self.cluster.job("job")["state"], "parked")
        finally:
            alone.kill()
            alone.wait()
        self.cluster.up()
        self.assertEqual(self.cluster.finish("job")["digest"], self.expected)
        self.assertEqual(self.cluster.job("job")["incarnation"], 2)
        self.assertEqual(len(self.started_instances()), 1, self.started_instances())


class AgentDiesInAPause(CrashingTest):
    def test_job_that_moved_away_and_was_restored_here_continues(self):
        arguments = [*TRAINING, "--steps", "800"]
        expected = run_unmoved("charlm", *arguments)["digest"]
        self.cluster.start("job", "charlm", *arguments, "--step-ms", str(STEP_MS), node="node-a")
        self.cluster.wait_for_line("job", r"^step 20\b")
        self.cluster.call("migrate", "job", "--to", "node-b")
        self.cluster.call("suspend", "job")
        self.cluster.call("resume", "job", "--to", "node-a")
        eventually(lambda: self.cluster.job("job")["state"] == "running", "it runs")
        victims = self.daemons_of("agent.node-a")
        self.cluster.arm("agent.node-a", Point.SNAPSHOT_SAVED)
        with self.cluster.popen("snapshot", "job") as ordering:
            self.wait_until_fired("agent.node-a", Point.SNAPSHOT_SAVED, ordering)
            self.wait_until_dead(victims)
            ordering.send_signal(signal.SIGTERM)
        self.cluster.up()
        self.assertEqual(self.cluster.finish("job")["digest"], expected)


class StoppedThenRestored(CrashingTest):
    """A job that was stopped is restored elsewhere only when nothing of it can run any more."""

    def start_job(self):
        arguments = [*TRAINING, "--steps", "2000"]
        self.expected = run_unmoved("charlm", *arguments)["digest"]
        self.cluster.start("job", "charlm", *arguments, "--step-ms", str(STEP_MS), node="node-a")
        self.cluster.wait_for_line("job", r"^step 20\b")
        self.cluster.call("snapshot", "job", "--to", f"{self.cluster.home}/vault/")

    def lines_of(self, node):
        """The number of output lines of each instance on the node."""
        logs = sorted((self.cluster.home / "nodes" / node / "jobs").glob("j*.*/out.log"))
        return [len(log.read_text().splitlines()) for log in logs]

    def test_job_stopped_on_a_silent_node_is_not_restored_without_force(self):
        self.start_job()
        victims = self.daemons_of("agent.node-a")
        self.cluster.kill("nodes/node-a/agent.toml")
        self.wait_until_dead(victims)
        eventually(lambda: self.cluster.job("job")["state"] == "unreachable", "node-a is away")
        stopped = self.cluster.call("stop", "job", "--grace", "0s", exits=(6,))
        self.assertIn("stopping (node silent)", stopped.stdout)
        self.assertIn("the job is stopped when that node reconnects", stopped.stderr)
        self.assertEqual(self.cluster.job("job")["state"], "stopping")
        refused = self.cluster.call("restore", "job", "--accept-loss", exits=(5,)).stderr
        self.assertIn("node node-a, where it was last known to run, is not connected", refused)
        before = self.lines_of("node-a")
        eventually(lambda: self.lines_of("node-a") > before, "it runs on at node-a")
        self.cluster.up()
        eventually(lambda: not self.cluster.pids("examples/charlm"), "node-a has ended it")
        eventually(lambda: self.cluster.job("job")["state"] == "exited", "its end is known")
        self.cluster.call("restore", "job", "--accept-loss", "--to", "node-b", exits=(0, 3))
        self.assertEqual(self.cluster.finish("job")["digest"], self.expected)

    def test_job_stopped_during_a_restore_is_restored_only_once(self):
        self.start_job()
        self.cluster.arm("agent.node-b", Point.RESTORE_STARTED, "stop")
        with self.cluster.popen("restore", "job", "--accept-loss", "--to", "node-b") as ordering:
            self.wait_until_fired("agent.node-b", Point.RESTORE_STARTED, ordering)
            self.cluster.call("stop", "job", "--grace", "0s")
            with self.cluster.popen("restore", "job", "--accept-loss", "--to", "node-a") as again:
                eventually(lambda: self.cluster.job("job")["state"] == "restoring", "it is to be restored at node-a")
                self.cluster.kill("nodes/node-b/agent.toml", signal.SIGCONT)
                self.assertIn(again.wait(60), (0, 3), again.communicate())
        self.assertEqual(self.cluster.job("job")["incarnation"], 3)
        self.assertEqual(self.cluster.finish("job")["digest"], self.expected)
        self.assertFalse(any(self.lines_of("node-b")), "it ran at node-b")
        log = (self.cluster.home / "nodes/node-b/agent.log").read_text()
        self.assertRegex(log, "not restored: job .* incarnation 2 ")


def make_test(number):
    return lambda self: self.restore_through(number)


for name, number in POINTS:
    setattr(CoordinatorDies, f"test_{number}_{name}", make_test(number))
