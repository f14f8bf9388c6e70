# SPDX-License-Identifier: Apache-2.0
"""A program that ends by itself with exit code 0 right behind its switch, before the source has released it:
the move is done, the job has exited, and no step is made twice. The source's agent is held where it has
received RUNS; meanwhile the program ends at the target."""
import json
import os
import re
import signal
import unittest

from cluster import run_unmoved
from crashing import TRAINING, CrashingTest
from crashing_processes import find_criu
from waiting import eventually
from fault_points import Point

STEPS, STEP_MS = 80, 50
RECEIVED_RUNS, RUNS = Point.SOURCE_RECEIVED_RUNS, Point.TARGET_RUNS


class FinishesWhileMoving(CrashingTest):
    gpus = 2

    def keeper_has_written_its_end(self):
        for path in self.cluster.home.glob("nodes/*/jobs/j*/status.json"):
            status = json.loads(path.read_text())
            if status.get("exit_code") == 0 and not status["moved"]:
                return True
        return False

    def target_has_taken_its_end(self):
        logs = [path.read_text() for path in self.cluster.home.glob("nodes/*/agent.log")]
        return any(re.search(r"switch (job-died|gave-up): id \S+ role target", log) for log in logs)

    def move_until_it_ends(self, program, way, target, dying=None):
        cluster = self.cluster
        arguments = [*TRAINING, "--steps", str(STEPS)]
        expected = run_unmoved(program, *arguments)["digest"]
        cluster.start("job", program, *arguments, "--step-ms", STEP_MS, node="node-a:0", way=way)
        cluster.wait_for_line("job", r"^step 5\b")
        cluster.arm("agent.node-a", RECEIVED_RUNS, "stop")
        held = self.daemons_of("agent.node-a")
        if dying:
            cluster.arm(dying, RUNS)
            victims = self.daemons_of(dying)
        moved = cluster.popen("migrate", "job", "--to", target)
        if dying:
            self.wait_until_fired(dying, RUNS, moved)
            self.wait_until_dead(victims)
            eventually(self.keeper_has_written_its_end, "the program ends")
            cluster.up()
        self.wait_until_fired("agent.node-a", RECEIVED_RUNS, moved)
        eventually(self.target_has_taken_its_end, "the target's agent reports the program's end")
        signal.pidfd_send_signal(held[0], signal.SIGCONT)
        os.close(held[0])
        output, errors = moved.communicate(timeout=120)
        self.assertEqual(moved.returncode, 0, output + errors)
        self.assertEqual(cluster.finish("job")["digest"], expected)
        job = cluster.job("job")
        self.assertEqual((job["state"], job["exit_code"]), ("exited", 0), job)
        logs = [path.read_text() for path in cluster.home.glob("nodes/*/jobs/j*/out.log")]
        steps = sorted(int(step) for log in logs for step in re.findall(r"^step (\d+)\b", log, re.M))
        self.assertEqual(steps, list(range(1, STEPS + 1)), "steps lost or repeated")

    def test_cooperative_job_may_finish_while_it_moves(self):
        self.move_until_it_ends("charlm", ("--cooperative",), "node-b:0")

    def test_cooperative_job_may_finish_while_its_target_agent_is_killed(self):
        self.move_until_it_ends("charlm", ("--cooperative",), "node-b:0", dying="agent.node-b")

    def test_cooperative_job_stopped_during_a_move_ends_at_the_target(self):
        """It ends at the target; the source must not go on until the stop has come there, too."""
        cluster = self.cluster
        cluster.start("job", "charlm", *TRAINING, "--steps", "100000", "--step-ms", STEP_MS, node="node-a:0")
        cluster.wait_for_line("job", r"^step 5\b")
        cluster.arm("agent.node-a", RECEIVED_RUNS, "stop")
        held = self.daemons_of("agent.node-a")
        moved = cluster.popen("migrate", "job", "--to", "node-b:0")
        self.wait_until_fired("agent.node-a", RECEIVED_RUNS, moved)
        stopped = cluster.popen("stop", "job", "--grace", "0s")
        eventually(self.target_has_taken_its_end, "the target's agent reports the program's end")
        signal.pidfd_send_signal(held[0], signal.SIGCONT)
        os.close(held[0])
        for command in (moved, stopped):
            output, errors = command.communicate(timeout=120)
            self.assertEqual(command.returncode, 0, output + errors)
        eventually(lambda: cluster.job("job")["state"] == "exited", "the job ends")
        logs = [path.read_text() for path in cluster.home.glob("nodes/*/jobs/j*/out.log")]
        steps = sorted(int(step) for log in logs for step in re.findall(r"^step (\d+)\b", log, re.M))
        self.assertEqual(steps, list(range(1, len(steps) + 1)), "steps lost or repeated")

    def test_process_may_finish_while_it_moves(self):
        if os.geteuid() != 0 or not find_criu():
            self.skipTest("a process moves between nodes by root with CRIU only")
        self.move_until_it_ends("charlm-plain", (), "node-b:0")
