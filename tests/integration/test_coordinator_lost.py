# SPDX-License-Identifier: Apache-2.0
"""A coordinator that lost its disk: what runs goes on, and nothing new is mixed up with it."""
import shutil
import unittest

from cluster import ClusterTest


class CoordinatorLost(ClusterTest):
    nodes = 1

    def start_sleeper(self, name):
        cluster = self.cluster
        cluster.call("run", "--cooperative", "--detach", "--name", name, "--", "/bin/sh", "-c", f"echo I am {name}; exec sleep 1000")
        cluster.wait_for_line(name, f"I am {name}")
        return cluster.job(name)["id"]

    def lose_the_store(self):
        self.cluster.kill("gpumigrate-coordinator")
        folder = self.cluster.home / "coordinator"
        lost = [*folder.glob("state.db*"), *folder.glob("journal*")]
        self.assertGreaterEqual(len(lost), 2, lost)
        for path in lost:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.cluster.up()

    def test_new_jobs_are_not_mixed_up_with_those_of_the_lost_store(self):
        cluster = self.cluster
        old = [self.start_sleeper(name) for name in ("old-1", "old-2")]
        before = sorted(cluster.pids("sleep 1000"))
        self.lose_the_store()
        names = ["new-1", "new-2"]
        new = [self.start_sleeper(name) for name in names]
        self.assertEqual(len({*old, *new}), 4, (old, new))
        for number, name in enumerate(names, start=1):
            self.assertEqual(cluster.log(name).strip(), f"I am {name}")
            self.assertEqual(cluster.json("describe", f"j{number}")["name"], name)  # the short form
            cluster.call("stop", name)
            cluster.call("wait", name, exits=(143,))
        self.assertEqual(sorted(cluster.pids("sleep 1000")), before, "a stop ended another job")


if __name__ == "__main__":
    unittest.main()
