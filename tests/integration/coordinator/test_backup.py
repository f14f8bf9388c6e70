# SPDX-License-Identifier: Apache-2.0
"""A coordinator that lost its disk and gets a backup back: the jobs of the backup are known again, and
run."""
import shutil
import stat
import unittest

from cluster import ClusterTest, run_unmoved

TRAINING = ["--seed", "5", "--print-every", "1"]
STEPS = ["--params", "60000", "--steps", "1500"]


class Backup(ClusterTest):
    nodes = 2

    def start_sleeper(self, name):
        cluster = self.cluster
        cluster.call("run", "--cooperative", "--detach", "--name", name, "--", "/bin/sh", "-c",
                     f"echo I am {name}; exec sleep 1000")
        cluster.wait_for_line(name, f"I am {name}")

    def jobs(self):
        """The coordinator's view of each that a backup must bring back. A program that never uses the GPU
        stays "starting"."""
        return {job["name"]: (job["id"], job["state"], job["node"], job["incarnation"])
                for job in self.cluster.json("jobs")}

    def lose_the_store(self):
        self.cluster.kill("gpumigrate-coordinator")
        folder = self.cluster.home / "coordinator"
        lost = [*folder.glob("state.db*"), *folder.glob("journal*")]
        self.assertGreaterEqual(len(lost), 2, lost)
        for path in lost:
            path.unlink()

    def test_backup_restores_jobs_after_the_loss_of_the_coordinator_disk(self):
        cluster = self.cluster
        file = cluster.home / "cluster.backup"
        expected = run_unmoved("charlm", *TRAINING, *STEPS)["digest"]
        cluster.start("train", "charlm", *TRAINING, *STEPS, "--step-ms", "8")
        cluster.wait_for_line("train", r"^step 20\b")
        self.start_sleeper("sleeper")
        snapshot = cluster.json("snapshot", "train")
        made = cluster.json("backup", str(file))
        self.assertEqual(made["jobs"], 2)
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)
        self.assertEqual(list((cluster.home / "coordinator" / "backups").iterdir()), [],
                         "the coordinator kept its copy")
        self.assertEqual(cluster.json("backup", "show", str(file))["cluster"], made["cluster"])
        before = self.jobs()
        self.assertEqual(before["train"][1], "running", before)
        ran = sorted(cluster.pids("sleep 1000"))
        refused = cluster.call("backup", "restore", str(file), "--replace", exits=(5,))
        self.assertIn("A coordinator runs", refused.stderr)

        self.lose_the_store()
        cluster.call("backup", "restore", str(file))
        cluster.up()

        self.assertEqual(self.jobs(), before)
        self.assertEqual(sorted(cluster.pids("sleep 1000")), ran)
        self.assertEqual(cluster.json("backup", str(file))["cluster"], made["cluster"])
        self.assertIn("I am sleeper", cluster.log("sleeper"))
        self.assertEqual([image["id"] for image in cluster.json("images")], [snapshot["image"]])
        cluster.call("stop", "sleeper")
        cluster.call("wait", "sleeper", exits=(143,))
        self.assertEqual(cluster.finish("train")["digest"], expected)
