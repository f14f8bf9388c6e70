# SPDX-License-Identifier: Apache-2.0
"""An agent dies while a snapshot holds a job. When it is back the job goes on, whatever moves of it have
ended before, and no image stays in memory."""
import os
import unittest

from cluster import run_unmoved
from crashing import TRAINING, CrashingTest
from crashing_processes import find_criu
from fault_points import Point

STEPS, STEP_MS = 1000, 20
SOURCE_DUMPED = Point.SOURCE_DUMPED


class AgentDiesDuringASnapshot(CrashingTest):
    gpus = 2

    def setUp(self):
        if os.geteuid() != 0 or not find_criu():
            self.skipTest("processes are saved by root with CRIU only")
        super().setUp()
        arguments = [*TRAINING, "--steps", str(STEPS)]
        self.expected = run_unmoved("charlm-plain", *arguments)["digest"]
        # Another job is started first. A restarted agent therefore checks for paused jobs only after its
        # migrations have been restored.
        for name, gpu in (("other", 1), ("job", 0)):
            self.cluster.start(name, "charlm-plain", *arguments, "--step-ms", STEP_MS, node=f"node-a:{gpu}",
                               way=())
            self.cluster.wait_for_line(name, r"^step 5\b")

    def kill_the_agent_during_a_snapshot(self):
        cluster = self.cluster
        agents = self.daemons_of("agent.node-a")
        cluster.arm("agent.node-a", SOURCE_DUMPED)
        with cluster.popen("snapshot", "job") as snapshot:
            self.wait_until_fired("agent.node-a", SOURCE_DUMPED, snapshot)
            self.wait_until_dead(agents)
            cluster.up()
            snapshot.communicate(timeout=60)

    def check_it_goes_on(self):
        for name in ("job", "other"):
            self.assertEqual(self.cluster.finish(name)["digest"], self.expected)
        job = self.cluster.job("job")["id"]
        self.assertFalse([image for image in os.listdir("/dev/shm") if f"-{job}." in image])

    def test_job_that_never_moved_survives_an_agent_crash(self):
        self.kill_the_agent_during_a_snapshot()
        self.check_it_goes_on()

    def test_job_that_moved_within_its_node_survives_an_agent_crash(self):
        self.cluster.migrate("job", "node-a:1")
        self.kill_the_agent_during_a_snapshot()
        self.check_it_goes_on()

    def test_job_that_moved_between_nodes_survives_an_agent_crash(self):
        self.cluster.migrate("job", "node-b")
        self.cluster.migrate("job", "node-a:0")
        self.kill_the_agent_during_a_snapshot()
        self.check_it_goes_on()
