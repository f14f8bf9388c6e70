# SPDX-License-Identifier: Apache-2.0
"""No single word loses work or time: a restore that loses work needs a flag, a preempted job is moved and not
parked where there is memory, a protection that works is not replaced by one that does not."""
import json
import unittest

from cluster import COMMAND_LIMIT_S, EXAMPLES, ClusterTest
from waiting import eventually

ENDLESS = ["--seed", "5", "--print-every", "1", "--params", "60000", "--steps", "100000", "--step-ms", "8"]


class NothingLost(ClusterTest):
    gpus = 2

    def begin(self, name="job", node="node-a:0", program="charlm", way=("--cooperative",)):
        self.cluster.start(name, program, *ENDLESS, node=node, way=way)
        self.cluster.wait_for_line(name, r"^step 5\b")

    def refused(self, *arguments):
        result = self.cluster.call(*arguments, exits=(5,))
        self.assertEqual(result.stdout, "")
        return result.stderr

    def test_restore_of_a_running_job_needs_its_loss_accepted(self):
        self.begin()
        image = self.cluster.json("snapshot", "job")["image"]
        before = self.cluster.job("job")
        for target in ("job", image):
            self.assertIn("--accept-loss", self.refused("restore", target))
            dry = self.cluster.json("restore", target, "--dry-run", exits=(5,))
            self.assertEqual((dry["image"], dry["runs"], dry["possible"]), (image, True, False), dry)
            self.assertGreater(dry["lost_ms"], 0)
            accepted = self.cluster.call("restore", target, "--dry-run", "--accept-loss")
            self.assertRegex(accepted.stdout, r"of work would be lost; its running instance would be stopped")
        after = self.cluster.job("job")
        self.assertEqual((after["incarnation"], after["ranks"][0]["pid"]),
                         (before["incarnation"], before["ranks"][0]["pid"]))
        back = self.cluster.json("restore", "job", "--accept-loss", exits=(3,))["restored"]
        self.assertGreater(back["lost_ms"], 0)

    def test_restore_from_an_older_image_than_the_last_needs_its_loss_accepted(self):
        self.begin()
        older = self.cluster.json("snapshot", "job")["image"]
        newest = self.cluster.json("suspend", "job")["image"]
        self.assertIn(f"has continued since {older}", self.refused("restore", older))
        self.assertEqual(self.cluster.job("job")["state"], "parked")
        self.assertEqual(self.cluster.json("restore", "job", "--dry-run")["lost_ms"], 0)
        back = self.cluster.json("restore", "job")["restored"]
        self.assertEqual((back["image"], back["lost_ms"]), (newest, 0))

    def test_stopped_parked_job_is_restored_without_loss(self):
        self.begin()
        self.cluster.json("suspend", "job")
        self.cluster.call("stop", "job")
        self.assertEqual(self.cluster.job("job")["state"], "exited")
        self.assertEqual(self.cluster.json("restore", "job")["restored"]["lost_ms"], 0)

    def test_working_protection_is_not_replaced_by_an_unwritable_one(self):
        self.begin()
        self.cluster.call("protect", "job", "--every", "10m", "--to", "node-b")
        before = self.cluster.job("job")["protection"]
        file = self.cluster.home / "file"
        file.write_text("no folder")
        for place in (self.cluster.home / "missing" / "folder", file, file / "folder"):
            for options in ((), ("--dry-run",)):
                self.assertIn("its current protection stays unchanged",
                              self.refused("protect", "job", "--every", "1s", "--to", place, *options))
        after = self.cluster.job("job")["protection"]
        self.assertEqual((after["to"], after["every_ms"]), (before["to"], before["every_ms"]))

    def test_suspend_uses_the_own_node_if_the_protection_fails(self):
        self.begin()
        vault = self.cluster.home / "vault"
        self.cluster.call("protect", "job", "--every", "10m", "--to", vault)
        eventually(lambda: self.cluster.json("images"), "protection takes an image")
        vault.rename(self.cluster.home / "elsewhere")
        vault.write_text("no folder any more")
        image = self.cluster.json("suspend", "job")["image"]
        self.assertTrue(image.endswith("@node-a"), image)
        self.assertEqual(self.cluster.job("job")["state"], "parked")

    def test_preempted_job_moves_to_free_memory_as_the_dry_run_reported(self):
        self.cluster.call("run", "--cooperative", "--detach", "--name", "low", "--node", "node-a:0",
                          "--gpu-memory", "1500MiB", "--", EXAMPLES / "charlm", *ENDLESS)
        self.cluster.wait_for_line("low", r"^step 5\b")
        high = ["run", "--cooperative", "--preempt", "--priority", "10", "--node", "node-a:0", "--gpu-memory",
                "1500MiB", "--name", "high"]
        program = ["--", EXAMPLES / "charlm", *ENDLESS]
        dry = json.loads(self.cluster.call(*high, "--dry-run", "-o", "json", *program).stdout)
        self.assertEqual((dry["possible"], dry["to"]), (True, "node-a:0"), dry)
        self.assertEqual([job["name"] for job in dry["displaced"]], ["low"])
        text = self.cluster.call(*high, "--dry-run", *program).stdout
        self.assertRegex(text, r"low \(j\S+, priority 0, at node-a:0\) would be moved live to node-")
        started = self.cluster.call(*high, "--detach", *program)
        self.assertRegex(started.stderr, r"low \(j\S+, priority 0, at node-a:0\) was moved live to node-")
        low = self.cluster.job("low")
        self.assertEqual((low["state"], low["incarnation"]), ("running", 2), low)
        self.assertEqual(self.cluster.json("images"), [])

    def test_snapshot_of_a_job_that_never_finishes_its_start_is_refused(self):
        """Within the limit of a command; before, it was waited for ten minutes."""
        self.cluster.call("run", "--detach", "--name", "shell", "--node", "node-a:0", "--", "/bin/sh", "-c",
                          "exec tail -f /dev/null")
        with self.cluster.popen("suspend", "shell") as suspend:
            self.assertIn("it is starting", self.refused("snapshot", "shell"))
            self.assertEqual(suspend.wait(COMMAND_LIMIT_S), 5)
            self.assertIn("it is starting", suspend.stderr.read())
        self.assertEqual(self.cluster.job("shell")["state"], "starting")


class ImageNumbers(ClusterTest):
    def test_images_of_a_job_in_different_places_have_different_numbers(self):
        self.cluster.start("job", "charlm", *ENDLESS)
        self.cluster.wait_for_line("job", r"^step 5\b")
        vault = self.cluster.home / "vault"
        places = ("node-a", "node-b", vault, "node-b", "node-a")
        taken = [self.cluster.json("snapshot", "job", "--to", place)["image"] for place in places]
        self.assertEqual([int(image.split(".v")[1].split("@")[0]) for image in taken], [1, 2, 3, 4, 5])
        listed = [image["version"] for image in self.cluster.json("images")]
        self.assertEqual(len(listed), len(set(listed)), listed)


class Quotas(ClusterTest):
    nodes = 1

    def test_quota_needs_a_unit(self):
        refused = self.cluster.call("run", "--gpu-memory", "5", "--", "/bin/true", exits=(64,))
        self.assertIn('"5" needs a unit', refused.stderr)
        self.assertEqual(self.cluster.json("jobs"), [])

    def test_quota_is_shown_and_reported_when_it_is_exceeded(self):
        hotset = [EXAMPLES / "hotset", "--bytes", "64MiB", "--steps", "10"]
        ended = self.cluster.run("run", "--name", "plain", "--gpu-memory", "20MiB", "--", *hotset,
                                 "--without-ckpt")
        self.assertNotEqual(ended.returncode, 0)
        self.assertRegex(self.cluster.log("plain"), r"the quota \(run --gpu-memory\) is 20\.0 MiB")
        self.assertRegex(self.cluster.call("describe", "plain").stdout, r"quota 20(\.0)? MiB;")
        self.cluster.call("run", "--cooperative", "--name", "coop", "--gpu-memory", "20MiB", "--", *hotset)
        self.assertRegex(self.cluster.call("describe", "coop").stdout,
                         r"quota 20(\.0)? MiB \(used for placement, not enforced\)")
