# SPDX-License-Identifier: Apache-2.0
"""kill -9 of agents at the crash points of a move of a whole process between two nodes. Before COMMITTED, and whenever the target cannot
restore, the job goes on at the source from the very step it stopped at. Needs root and CRIU."""
import pathlib
import shutil
import unittest

from crashing import EITHER, SOURCE, TARGET
from crashing_processes import CrashesWithCriu

AGENT_BEFORE = [("agent.source", number, ends_on) for number, ends_on in [
    (101, EITHER), (102, EITHER), (103, SOURCE), (108, SOURCE), (109, SOURCE), (110, SOURCE), (104, EITHER), (105, EITHER)]]
AGENT_AFTER = [("agent.source", 106, TARGET), ("agent.source", 107, TARGET)]
# The image is the target agent's until the restored process has a keeper: 204 ends on the source.
TARGET_BEFORE = [("agent.target", 201, EITHER), ("agent.target", 202, SOURCE), ("agent.target", 203, SOURCE),
                 ("agent.target", 204, SOURCE)]
TARGET_AFTER = [("agent.target", number, TARGET) for number in (207, 208, 209, 205, 206)]
POINTS = AGENT_BEFORE + AGENT_AFTER + TARGET_BEFORE + TARGET_AFTER


class AgentCrashes(CrashesWithCriu):
    def test_source_agent_before_committed(self):
        self.crash(AGENT_BEFORE, 4000)

    def test_source_agent_after_committed(self):
        self.crash(AGENT_AFTER, 2000)

    def test_target_agent_before_the_process_is_there(self):
        self.crash(TARGET_BEFORE, 2000)

    def test_target_agent_when_the_process_is_there(self):
        self.crash(TARGET_AFTER, 4000)

    def test_agent_dies_again_while_it_goes_back(self):
        self.start_training(2500)
        for first, second in ((110, 208), (109, 208), (110, 209)):
            with self.subTest(first=first, second=second):
                print(f"  agent.source {first}, then {second}:", end="", flush=True)
                for number in (first, second):
                    self.cluster.arm("agent.node-a", number)
                victims = self.daemons_of("agent.node-a")
                moved = self.cluster.popen("migrate", "job", "--to", "node-b", "-o", "json", "--timeout", "60s")
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

    def test_an_agent_removes_what_its_predecessor_left(self):
        self.start_training(1000)
        left = pathlib.Path("/dev/shm") / (self.image_folders("node-b") + "j9.m9-target")
        left.mkdir(mode=0o700)
        self.addCleanup(shutil.rmtree, left, ignore_errors=True)
        (left / "pages-1.img").write_bytes(b"x" * 4096)
        self.kill_agent("node-b")
        self.cluster.up()
        self.move_and_finish()
