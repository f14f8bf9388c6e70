# SPDX-License-Identifier: Apache-2.0
"""No memory for the image of a process on either side of a move between two nodes: the job goes on at the
source. Needs root and CRIU."""
import errno
import json
import os
import pathlib
import signal
import subprocess
import unittest
import unittest.mock

from cluster import BIN, Cluster, CommandError
from crashing import SOURCE
from crashing_processes import CrashesWithCriu
from fault_points import Point


class SmallCluster(Cluster):
    """Its daemons have a /dev/shm of their own that holds little."""

    def up(self):
        small = "mount -t tmpfs -o size=2m,mode=1777 gpumigrate-test /dev/shm && exec \"$@\""
        command = ["unshare", "--mount", "sh", "-c", small, "sh", BIN / "gpumigrate", "local", "up",
                   *self.up_arguments]
        result = subprocess.run(command, env=self.environment, capture_output=True, text=True, cwd=self.home)
        if result.returncode != 0:
            raise CommandError(result)


class FullMemoryFolder(CrashesWithCriu):
    def setUp(self):
        with unittest.mock.patch("cluster.Cluster", SmallCluster):
            super().setUp()

    def fill_memory_folder(self, node):
        """Returns what must be removed for it to have space again."""
        agent = self.cluster.pids(f"nodes/{node}/agent.toml")[0]
        filler = pathlib.Path(f"/proc/{agent}/root/dev/shm/filler")
        with filler.open("wb", buffering=0) as file:
            try:
                while file.write(b"x" * 4096):
                    pass
            except OSError as error:
                self.assertEqual(error.errno, errno.ENOSPC)
        return filler

    def test_job_continues_if_the_memory_folder_of_the_source_is_full(self):
        self.start_training(2500)
        filler = self.fill_memory_folder("node-a")
        print("  full at the source:", end="", flush=True)
        moved = self.cluster.popen("migrate", "job", "--to", "node-b", "-o", "json", "--timeout", "60s")
        migration = self.check_outcome(moved, "node-a", "node-b", SOURCE)
        self.assertIn("/dev/shm", json.dumps(migration["error"]))
        filler.unlink()
        self.move_and_finish()

    def test_job_continues_if_the_memory_folder_of_the_target_is_full(self):
        self.start_training(2500)
        print("  full at the target:", end="", flush=True)
        self.cluster.arm("agent.node-b", Point.TARGET_COMMITTED_DURABLE, "stop")
        held = self.daemons_of("agent.node-b")
        moved = self.cluster.popen("migrate", "job", "--to", "node-b", "-o", "json", "--timeout", "60s")
        self.wait_until_fired("agent.node-b", Point.TARGET_COMMITTED_DURABLE, moved)
        filler = self.fill_memory_folder("node-b")
        signal.pidfd_send_signal(held[0], signal.SIGCONT)
        os.close(held[0])
        migration = self.check_outcome(moved, "node-a", "node-b", SOURCE)
        self.assertIn("No space left", json.dumps(migration["error"]))
        filler.unlink()
        self.move_and_finish()
