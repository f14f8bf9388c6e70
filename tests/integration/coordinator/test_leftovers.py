# SPDX-License-Identifier: Apache-2.0
"""The daemons keep nothing of a job that has gone: neither a mover's knowledge of the snapshots of jobs that
ended, nor, where CRIU works, the memory files of processes that moved away."""
import os
import re
import unittest

from crashing import CrashingTest
from usage import SETTINGS, jobs_one_after_the_other, memory_files
from waiting import DEADLINE_S, eventually_equal
from fault_points import Point

HOTSET = ["--bytes", "4MiB", "--step-ms", "5", "--seed", "4", "--steps", "100000", "--print-every", "1"]
TRAINING = ["--params", "200000", "--seed", "3", "--print-every", "1", "--step-ms", "5", "--steps", "100000"]
SOURCE_DUMPED = Point.SOURCE_DUMPED


class Leftovers(CrashingTest):
    coordinator_settings = SETTINGS

    def forgotten(self):
        logs = self.cluster.home.rglob("mover-*.log")
        return sum(len(re.findall(r"snapshots forgotten: job", path.read_text(errors="replace")))
                   for path in logs)

    def test_a_mover_forgets_the_snapshots_of_jobs_that_ended(self):
        cluster = self.cluster
        for turn in range(3):
            name = f"job{turn}"
            cluster.start(name, "hotset", *HOTSET)
            cluster.wait_for_line(name, r"^step 2\b")
            cluster.call("snapshot", name)
            self.assertEqual(self.forgotten(), turn)
            cluster.call("stop", name, "--grace", "0s")
            eventually_equal(self.forgotten, turn + 1, f"the mover forgets {name}")

    def memory_files(self):
        """The memory files of all agents."""
        return [name for agent in self.cluster.pids("agent.toml") for name in memory_files(agent)]

    def test_daemons_use_no_more_memory_after_eight_jobs_than_after_three(self):
        jobs_one_after_the_other(self, self.cluster, 8, warm=3).check_memory()

    def start_process(self):
        """Starts an unmodified program that can move to another node; skips the test where none can."""
        self.cluster.start("job", "charlm-plain", *TRAINING, way=())
        self.cluster.wait_for_line("job", r"^step \d+")
        plan = self.cluster.run("migrate", "job", "--to", "node-b", "--dry-run")
        if plan.returncode != 0 and "host processes" in plan.stdout + plan.stderr:
            self.skipTest((plan.stdout + plan.stderr).strip())

    def test_agents_keep_no_image_of_a_process_that_moved(self):
        cluster = self.cluster
        self.start_process()
        before = sorted(self.memory_files())
        for node in ("node-b", "node-a"):
            self.assertEqual(cluster.migrate("job", node)["result"], "done")
        eventually_equal(lambda: sorted(self.memory_files()), before, "the agents let go of memory files")
        cluster.call("stop", "job", "--grace", "0s")

    def test_agents_keep_no_image_of_a_job_that_ended_while_they_were_down(self):
        cluster = self.cluster
        self.start_process()
        agents = self.daemons_of("agent.node-a")
        cluster.arm("agent.node-a", SOURCE_DUMPED)
        with cluster.popen("suspend", "job") as suspending:
            self.wait_until_fired("agent.node-a", SOURCE_DUMPED, suspending)
            self.wait_until_dead(agents)
            self.assertTrue(self.images_of("job"), "the dump left no image, so this test shows nothing")
            cluster.kill("gpumigrate-keeper")
            cluster.up()
            suspending.communicate(timeout=DEADLINE_S)
        self.assertEqual(self.images_of("job"), [])

    def images_of(self, name):
        return [image for image in os.listdir("/dev/shm") if f"-{self.cluster.job(name)['id']}." in image]
