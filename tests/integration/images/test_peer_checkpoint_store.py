# SPDX-License-Identifier: Apache-2.0
"""Images in the checkpoint store of another node, in its memory: a job that is protected there outlives its own node,
also on a third one; beyond memory's limit images lie on the disk, and nothing is lost. What a job rests in
lies on a disk."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from cluster import BIN, ClusterTest, run_unmoved
from waiting import eventually

STEPS = ["--steps", "1500", "--seed", "7", "--print-every", "1"]
HOTSET = ["--bytes", "64MiB", "--hot", "2%", "--seed", "4", "--pattern", "random", "--steps", "2000",
          "--print-every", "1"]
STEP_MS = ["--step-ms", "5"]  # the pace changes no digest


class Peers(ClusterTest):
    nodes = 3
    memory_mib = 1024

    def setUp(self):
        self.tmpfs = tempfile.mkdtemp(prefix="gm-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, self.tmpfs, ignore_errors=True)
        self.agent_settings = f'checkpoint_store_memory = "{self.tmpfs}"\ncheckpoint_store_memory_limit_mib = {self.memory_mib}\nhealth_window_ms = 200\n'
        super().setUp()

    def begin(self, program, arguments, way=("--cooperative",)):
        self.expected = run_unmoved(program, *arguments)["digest"]
        self.cluster.start("job", program, *arguments, *STEP_MS, way=way)
        self.cluster.wait_for_line("job", r"^step 10\b")

    def end(self, node):
        self.assertEqual(self.cluster.job("job")["node"], node)
        self.assertEqual(self.cluster.finish("job")["digest"], self.expected)

    def images(self):
        """{version: image}"""
        return {image["version"]: image for image in self.cluster.json("images")}

    def protect(self, *arguments, images=2):
        """Until that many images were taken."""
        self.cluster.call("protect", "job", "--every", "1s", "--to", "node-b", *arguments)
        seen = set()

        def has_enough():
            protection = self.cluster.job("job")["protection"]
            self.assertIsNone(protection["last_error"])
            if protection["last_image"]:
                self.assertRegex(protection["last_image"], r"@node-b$")
                seen.add(protection["last_image"])
            return len(seen) >= images
        eventually(has_enough, f"protection takes {images} images")

    def lose_node(self, name):
        """All of it at once: agent, mover, keeper; ranks go with their keeper."""
        self.cluster.kill(f"nodes/{name}/")
        self.wait_for_event("node-lost")

    def wait_for_event(self, kind):
        with self.cluster.popen("events", "-f", "-o", "json") as follower:
            for line in follower.stdout:
                if f'"kind":"{kind}"' in line:
                    break
            follower.kill()


class PeerCheckpointStore(Peers):
    def test_a_protected_job_outlives_its_node(self):
        self.begin("charlm", STEPS)
        self.protect("--keep", "3")
        self.assertFalse((self.cluster.home / "nodes/node-a/vault").exists())
        for image in self.images().values():
            self.assertEqual((image["node"], image["tier"], image["disk_bytes"]), ("node-b", "memory", 0),
                             image)
        self.lose_node("node-a")
        back = self.cluster.json("restore", "job", "--force", "--accept-loss", exits=(3,))["restored"]
        self.assertEqual(back["at"].split(":")[0], "node-b")
        self.end("node-b")

    def test_a_third_node_reads_the_image_over_the_link(self):
        self.begin("charlm", STEPS)
        self.protect()
        self.lose_node("node-a")
        back = self.cluster.json("restore", "job", "--force", "--accept-loss", "--to", "node-c", exits=(3,))["restored"]
        self.assertRegex(back["image"], r"@node-b$")
        self.assertFalse((self.cluster.home / "nodes/node-c/vault").exists())
        self.end("node-c")

    def test_only_changed_chunks_are_sent_and_the_server_may_crash(self):
        self.begin("hotset", HOTSET)
        first = self.cluster.json("snapshot", "job", "--to", "node-b")["report"]
        second = self.cluster.json("snapshot", "job", "--to", "node-b")["report"]
        self.assertEqual((second["version"], second["parent"]), (2, 1))
        self.assertGreaterEqual(first["written_bytes"], 60 << 20)
        self.assertLess(second["written_bytes"], 1.1 * second["dirty_bytes"] + (1 << 20))
        self.cluster.kill("gpumigrate-checkpoint-store")
        third = self.cluster.json("snapshot", "job", "--to", "node-b")["report"]
        self.assertEqual((third["version"], third["parent"]), (3, 2))
        self.cluster.json("restore", "job", "--accept-loss", "--to", "node-c", exits=(3,))
        self.end("node-c")

    def test_image_of_a_parked_job_is_on_a_disk(self):
        self.begin("charlm", STEPS)
        self.cluster.json("snapshot", "job", "--to", "node-b")
        self.assertEqual(self.images()[1]["tier"], "memory")
        self.cluster.json("suspend", "job", "--to", "node-b")
        self.assertEqual([i["tier"] for i in self.images().values()], ["disk", "disk"])
        self.cluster.json("resume", "job", "--to", "node-c")
        self.end("node-c")

    @unittest.skipUnless(os.geteuid() == 0, "a process moves as root only")
    def test_a_transparent_job_is_restored_from_its_image(self):
        self.begin("charlm-plain", STEPS, way=())
        self.cluster.json("snapshot", "job", "--to", "node-b")
        self.cluster.kill("examples/charlm-plain")
        self.cluster.run("wait", "job")
        self.cluster.json("restore", "job", "--accept-loss", "--to", "node-c", exits=(0, 3))
        self.end("node-c")


    def test_job_leaves_a_failed_node_with_images_in_the_store_of_that_node(self):
        """They are in that node's own checkpoint store, which another node reads while it is there."""
        self.begin("charlm", STEPS)
        self.cluster.json("snapshot", "job")
        for order in (["lose-device"], ["xid", "79"]):
            subprocess.run([BIN / "cudasim-ctl", "--dir", self.cluster.home / "nodes/node-a/gpu", "--device",
                            "0", *order],
                           check=True, capture_output=True)
        self.wait_for_event("job-restored")
        self.assertRegex(self.cluster.json("images")[0]["id"], "@node-a$")
        self.assertNotEqual(self.cluster.job("job")["node"], "node-a")
        self.assertEqual(self.cluster.finish("job")["digest"], self.expected)


class SmallMemory(Peers):
    memory_mib = 66  # one image and a few of the changed chunks

    def test_images_beyond_the_memory_limit_are_stored_on_disk(self):
        self.begin("hotset", HOTSET)
        self.protect("--keep", "100", images=4)
        self.cluster.call("unprotect", "job")
        images = self.images()
        self.assertNotEqual(images[min(images)]["tier"], "memory", images)
        self.assertNotEqual(images[max(images)]["tier"], "disk", images)
        for version, image in images.items():
            self.assertFalse(image["damaged"], image)
            self.assertGreater(image["memory_bytes"] + image["disk_bytes"], 60 << 20, image)
        memory = sum(f.stat().st_size for f in (pathlib.Path(self.tmpfs) / "node-b").rglob("*.pack"))
        self.assertLessEqual(memory, self.memory_mib << 20)
        # The oldest and the newest image are complete, wherever their content is stored.
        self.cluster.json("restore", f"{images[min(images)]['id']}", "--accept-loss", "--to", "node-c", exits=(3,))
        self.cluster.json("restore", f"{images[max(images)]['id']}", "--accept-loss", "--to", "node-b", exits=(3,))
        self.end("node-b")
