# SPDX-License-Identifier: Apache-2.0
"""A job that runs through crashes of the participants in a snapshot into another node's checkpoint store: it runs on
where it is, no step lost or repeated; the newest whole image restores, the next one is taken, and what was
left unfinished is gone."""
import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile

from cluster import BIN, run_unmoved
from crashing import CrashingTest
from drawing import drawn

HOTSET = ["--bytes", "16MiB", "--hot", "4%", "--seed", "4", "--pattern", "random", "--print-every", "1"]
STEPS_OF_A_POINT = 1000  # the job must outlast all crashes of a point
LOOKS = 200
PIDFD_GETFD = 438


def cut_links(pid):
    """Every connection of that process ends, as if a router had gone; it itself notices nothing but that."""
    process = os.pidfd_open(pid)
    libc = ctypes.CDLL(None, use_errno=True)
    cut = 0
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        if not os.readlink(entry).startswith("socket:"):
            continue  # a copy of a locked file would hold the lock
        copy = libc.syscall(PIDFD_GETFD, process, int(entry.name), 0)
        if copy < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        with socket.socket(fileno=copy) as link:
            try:
                link.getpeername()
            except OSError:
                continue  # a listening socket
            if link.family == socket.AF_INET:
                link.shutdown(socket.SHUT_RDWR)
                cut += 1
    os.close(process)
    return cut


class PeerCrashingTest(CrashingTest):
    def setUp(self):
        self.tmpfs = tempfile.mkdtemp(prefix="gm-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, self.tmpfs, ignore_errors=True)
        self.agent_settings = f'checkpoint_store_memory = "{self.tmpfs}"\ncheckpoint_store_memory_limit_mib = 1024\n'
        super().setUp()
        self.restores = 0

    def snapshot(self):
        return self.cluster.json("snapshot", "job", "--to", "node-b")["report"]["version"]

    def images(self):
        return {image["version"]: image for image in self.cluster.json("images")}

    def printed_steps(self):
        return [int(step) for step in re.findall(r"^step (\d+)\b", self.cluster.log("job"), re.M)]

    def check_steps(self):
        """One after the other, but where it went on from an image."""
        steps = self.printed_steps()
        back = sum(after <= before for before, after in zip(steps, steps[1:]))
        lost = [before for before, after in zip(steps, steps[1:]) if after > before + 1]
        self.assertEqual(lost, [], "steps are missing")
        self.assertLessEqual(back, self.restores, "steps were done twice")

    def check_it_runs_on(self, incarnation):
        self.cluster.wait_for_line("job", rf"^step {self.printed_steps()[-1] + 2}\b")
        job = self.cluster.job("job")
        self.assertEqual((job["node"], job["incarnation"]), ("node-a", incarnation), job)
        self.check_steps()

    def store_files(self):
        """The files of node-b's checkpoint store, in memory and on the disk."""
        folders = (self.cluster.home / "nodes/node-b/vault", pathlib.Path(self.tmpfs))
        return [path for folder in folders for path in folder.rglob("*") if path.is_file()]

    def check_nothing_is_left_over(self):
        """The collection runs behind the snapshot; each look is a command of its own."""
        for _ in range(LOOKS):
            verified = subprocess.run([BIN / "ckpt-image", "verify", self.cluster.home / "nodes/node-b/vault",
                                       "--memory",
                                       f"{self.tmpfs}/node-b", "-o", "json"], capture_output=True, text=True)
            unfinished = [path.name for path in self.store_files() if path.name.endswith(".new")]
            if not unfinished and json.loads(verified.stdout)["clean"]:
                return
        self.fail(f"left over: {unfinished}; {verified.stdout} {verified.stderr}")

    def crash(self, role, number, cut):
        cluster = self.cluster
        reported = self.snapshot()
        incarnation = cluster.job("job")["incarnation"]
        victims = [] if cut else self.daemons_of(role)
        cluster.arm(role, number, "stop" if cut else "kill")
        with cluster.popen("snapshot", "job", "--to", "node-b") as ordering:
            self.wait_until_fired(role, number, ordering)
            if cut:
                (server,) = cluster.pids("gpumigrate-checkpoint-store")
                self.assertGreater(cut_links(server), 0)
                os.kill(server, signal.SIGCONT)
            self.wait_until_dead(victims)
            if victims:
                cluster.up()
            output, errors = ordering.communicate(timeout=120)
        self.assertIn(ordering.returncode, (0, 1, 6), output + errors)
        self.check_it_runs_on(incarnation)
        images = self.images()
        self.assertGreaterEqual(max(images), reported, images)
        self.assertFalse([image for image in images.values() if image["damaged"]], images)
        after = self.snapshot()
        self.assertGreater(after, max(images))
        self.check_nothing_is_left_over()
        done = cluster.json("restore", "job", "--accept-loss", "--to", "node-a", exits=(3,))["restored"]
        self.restores += 1
        self.assertIsNone(done["note"], done)
        self.assertIn(f".v{after}@node-b", done["image"])
        print(f"  {role} {number}{' cut' if cut else ''}: exit {ordering.returncode}, {reported} was reported, {max(images)} was there, {after} restored",
              flush=True)

    def crash_at_each(self, points, cut=False):
        points = drawn(points)
        arguments = [*HOTSET, "--steps", STEPS_OF_A_POINT * (len(points) + 1)]
        expected = run_unmoved("hotset", *map(str, arguments), "--step-ms", "0")["digest"]
        self.cluster.start("job", "hotset", *arguments, "--step-ms", "5")
        self.cluster.wait_for_line("job", r"^step 5\b")
        for role, number in points:
            with self.subTest(role=role, number=number):
                self.crash(role, number, cut)
        self.assertEqual(self.cluster.finish("job")["digest"], expected)
        self.check_steps()
