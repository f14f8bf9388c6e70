# SPDX-License-Identifier: Apache-2.0
"""kill -9 of agents at the crash points of a move of a whole process between two nodes. Before COMMITTED, and
whenever the target cannot restore, the job goes on at the source from the very step it stopped at. Needs root
and CRIU."""
import pathlib
import shutil
import unittest

from crashing import EITHER, SOURCE, TARGET
from crashing_processes import CrashesWithCriu
from fault_points import Point

AGENT_BEFORE = [("agent.source", number, ends_on) for number, ends_on in [
    (Point.SOURCE_PREPARING, EITHER), (Point.SOURCE_PRECOPY, EITHER), (Point.SOURCE_PAUSED, SOURCE),
    (Point.SOURCE_MEMORY_RELEASED, SOURCE), (Point.SOURCE_CONTEXT_SAVED, SOURCE),
    (Point.SOURCE_DUMPED, SOURCE), (Point.SOURCE_BARRIER_DURABLE, EITHER), (Point.SOURCE_FINAL_SENT, EITHER)]]
AGENT_AFTER = [("agent.source", Point.SOURCE_RECEIVED_RUNS, TARGET),
               ("agent.source", Point.SOURCE_RELEASED_DURABLE, TARGET)]
# The image belongs to the target agent until the restored process has a keeper, so 204 ends on the source.
TARGET_BEFORE = [("agent.target", Point.TARGET_PREPARING, EITHER),
                 ("agent.target", Point.TARGET_PRECOPY, SOURCE),
                 ("agent.target", Point.TARGET_VERIFIED, SOURCE),
                 ("agent.target", Point.TARGET_COMMITTED_DURABLE, SOURCE)]
TARGET_AFTER = [("agent.target", number, TARGET)
                for number in (Point.TARGET_RESTORED, Point.TARGET_CONTEXT_PLACED, Point.TARGET_MEMORY_MAPPED,
                               Point.TARGET_RUNS, Point.TARGET_RUNS_STATED)]
POINTS = AGENT_BEFORE + AGENT_AFTER + TARGET_BEFORE + TARGET_AFTER


class AgentCrashes(CrashesWithCriu):
    def test_job_returns_after_a_source_agent_crash_before_committed(self):
        self.crash(AGENT_BEFORE)

    def test_job_moves_despite_a_source_agent_crash_after_committed(self):
        self.crash(AGENT_AFTER)

    def test_job_returns_after_a_target_agent_crash_before_the_restore(self):
        self.crash(TARGET_BEFORE)

    def test_job_moves_despite_a_target_agent_crash_after_the_restore(self):
        self.crash(TARGET_AFTER)

    def test_job_survives_a_second_agent_crash_during_its_return(self):
        self.start_training(2500)
        for first, second in ((Point.SOURCE_DUMPED, Point.TARGET_CONTEXT_PLACED),
                              (Point.SOURCE_CONTEXT_SAVED, Point.TARGET_CONTEXT_PLACED),
                              (Point.SOURCE_DUMPED, Point.TARGET_MEMORY_MAPPED)):
            with self.subTest(first=first, second=second):
                print(f"  agent.source {first}, then {second}:", end="", flush=True)
                for number in (first, second):
                    self.cluster.arm("agent.node-a", number)
                victims = self.daemons_of("agent.node-a")
                moved = self.cluster.popen("migrate", "job", "--to", "node-b", "-o", "json", "--timeout",
                                           "60s")
                self.wait_until_fired("agent.node-a", first, moved)
                self.wait_until_dead(victims)
                started = self.cluster.run("local", "up", *self.cluster.up_arguments)
                if not self.cluster.fired("agent.node-a", second):
                    self.assertEqual(started.returncode, 0, started)
                    self.wait_until_fired("agent.node-a", second)
                self.wait_until_dead(self.daemons_of("agent.node-a"))
                self.cluster.up()
                self.check_outcome(moved, "node-a", "node-b", SOURCE)
        self.move_and_finish()

    def test_an_agent_removes_image_folders_of_its_predecessor(self):
        self.start_training(1000)
        left = pathlib.Path("/dev/shm") / (self.image_folders("node-b") + "j9.m9-target")
        left.mkdir(mode=0o700)
        self.addCleanup(shutil.rmtree, left, ignore_errors=True)
        (left / "pages-1.img").write_bytes(b"x" * 4096)
        self.kill_agent("node-b")
        self.cluster.up()
        self.move_and_finish()
