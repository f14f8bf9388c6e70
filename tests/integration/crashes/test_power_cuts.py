# SPDX-License-Identifier: Apache-2.0
"""The power goes: everything is killed at once at each step of taking an image, and what had not been synced
is on the disk, or is not, or is torn. The job goes on from the newest image that was ever reported, or a
newer one, and ends with the digest of one that was never cut."""
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import unittest

from cluster import BUILD, Cluster, ClusterTest, run_unmoved
from crashing import CrashingTest
from drawing import drawn
from fault_points import Point

RECORDER = BUILD / "tests/librecord_writes.so"
POWER_CUT = BUILD / "tests/power-cut"
# The crash points of the agent and the mover while an image is taken, in their order (docs/testing.md).
POINTS = [("mover", Point.SNAPSHOT_MOVER_READY), ("agent", Point.SNAPSHOT_PAUSED),
          ("mover", Point.SNAPSHOT_MOVER_STAGED), ("agent", Point.SNAPSHOT_SAVED),
          ("agent", Point.SNAPSHOT_RESUMED), ("mover", Point.SNAPSHOT_MOVER_WRITTEN),
          ("mover", Point.SNAPSHOT_MOVER_COMMITTED), ("agent", Point.SNAPSHOT_DURABLE)]
STEPS_OF_A_POINT = 750  # the job must outlast all crashes of a point
HOTSET = ["--bytes", "16MiB", "--hot", "4%", "--step-ms", "5", "--seed", "4", "--pattern", "random",
          "--print-every", "1"]


class RecordedCluster(Cluster):
    """A cluster that records the writes of its movers and agents below `disk`."""

    def up(self):
        self.disk, self.journal, self.before = self.home / "disk", self.home / "journal", self.home / "disk-before"
        self.disk.mkdir(exist_ok=True)
        self.environment |= {"CKPT_RECORD_FOLDER": str(self.disk), "CKPT_RECORD_JOURNAL": str(self.journal)}
        self.journal.unlink(missing_ok=True)
        shutil.rmtree(self.before, ignore_errors=True)
        shutil.copytree(self.disk, self.before)
        environment, self.environment = self.environment, self.environment | {"LD_PRELOAD": str(RECORDER)}
        super().up()
        self.environment = environment

    def cut_power(self, seed):
        """Everything dies, nothing has time for another word; then the disk loses what it may."""
        victims = {pid: os.pidfd_open(pid) for pid in self.processes()}
        for how in (signal.SIGSTOP, signal.SIGKILL):
            for process in victims.values():
                try:
                    signal.pidfd_send_signal(process, how)
                except ProcessLookupError:
                    pass
        for process in victims.values():
            select.select([process], [], [], 60)
            os.close(process)
        subprocess.run([POWER_CUT, self.journal, self.disk, self.before, str(seed)], check=True,
                       capture_output=True)


@unittest.skipUnless(RECORDER.exists(), "not built: a sanitizer wants to be the first that is loaded")
class PowerCuts(CrashingTest):
    def setUp(self):
        self.cluster = RecordedCluster(2, 1, "1GiB")
        self.addCleanup(self.cluster.down)
        self.addCleanup(self.show_logs_of_a_failure)

    def place(self):
        return self.cluster.job("job")["node"]

    def snapshot(self):
        """The number of the version, which was reported."""
        return self.cluster.json("snapshot", "job", "--to",
                                 str(self.cluster.disk / "vault"))["report"]["version"]

    def steps(self):
        return max((int(step) for step in re.findall(r"^step (\d+)\b", self.cluster.log("job"), re.M)),
                   default=0)

    def cut_at(self, role, number, seed):
        cluster = self.cluster
        node = self.place()
        reported = self.snapshot()
        role = f"agent.{node}" if role == "agent" else f"mover.{node}.0"
        cluster.arm(role, number, "stop")
        with cluster.popen("snapshot", "job", "--to", str(cluster.disk / "vault")) as ordering:
            self.wait_until_fired(role, number, ordering)
            cluster.cut_power(seed)
            ordering.kill()
        cluster.up()
        done = cluster.json("restore", "job", "--accept-loss", "--to", "node-b" if node == "node-a" else "node-a",
                            exits=(3,))["restored"]
        self.assertIsNone(done["note"], done)
        version = int(re.search(r"\.v(\d+)@", done["image"])[1])
        self.assertGreaterEqual(version, reported, done)
        print(f"  {role} {number}: {reported} was reported, {version} restored", flush=True)
        cluster.wait_for_line("job", rf"^step {self.steps() + 2}\b")

    def test_a_power_cut_at_each_step_of_an_image_loses_no_durable_image(self):
        points = drawn(enumerate(POINTS))
        steps = STEPS_OF_A_POINT * (len(points) + 1)
        arguments = [*HOTSET, "--steps", str(steps)]
        expected = run_unmoved("hotset", *HOTSET[:4], "--step-ms", "0", *HOTSET[6:], "--steps",
                               str(steps))["digest"]
        self.cluster.start("job", "hotset", *arguments)
        self.cluster.wait_for_line("job", r"^step 5\b")
        for seed, (role, number) in points:
            with self.subTest(role=role, number=number):
                self.cut_at(role, number, seed)
        self.assertEqual(self.cluster.finish("job")["digest"], expected)
