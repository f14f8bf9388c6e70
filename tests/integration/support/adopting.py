# SPDX-License-Identifier: Apache-2.0
"""A training that a user started by hand, on a node's GPU but without gpumigrate: what test_adopt*.py take
in."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tomllib
import unittest

from cluster import EXAMPLES, final_object, run_unmoved

TRAINING = ["--params", "200000", "--seed", "3", "--print-every", "1"]
STEP_MS = 5  # the pace changes no digest


def needs_criu():
    place = next((place for place in (os.environ.get("GPUMIGRATE_CRIU"), shutil.which("criu"),
                                      pathlib.Path.home() / ".cache/gpumigrate/criu/bin/criu",
                                      "/usr/local/lib/gpumigrate/criu/bin/criu") if place
                  and os.access(place, os.X_OK)), None)
    if os.geteuid() != 0:
        raise unittest.SkipTest("moving a process needs root")
    if not place:
        raise unittest.SkipTest("there is no CRIU: tools/criu install")


class HandStarted:
    """`output` is its own file, as a shell would have redirected it: no log of gpumigrate's."""

    def __init__(self, cluster, steps, node="node-a", gpu=0, step_ms=STEP_MS, pass_fds=(), command=()):
        self.cluster = cluster
        self.steps = steps
        self.output = cluster.shared / "training.out"
        settings = tomllib.loads((cluster.home / "nodes" / node / "agent.toml").read_text())
        environment = dict(cluster.environment, **dict(entry.split("=", 1) for entry in settings["job_environment"]))
        environment["CUDA_VISIBLE_DEVICES"] = str(gpu)
        environment["GPUMIGRATE_TEST_HURRY"] = str(cluster.hurry("by-hand"))
        command = command or [EXAMPLES / "charlm-plain", *TRAINING, "--steps", str(steps), "--step-ms", str(step_ms)]
        self.process, self.name = cluster.start_by_hand(node, list(map(str, command)), self.output,
                                                        env=environment, cwd=cluster.shared, pass_fds=pass_fds)
        self.pid = self.name[0]

    def wait_for_step(self, step):
        """Until it has printed that one; the follower ends with its last line."""
        with subprocess.Popen(["tail", "-n", "+1", "-F", "--", self.output], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL,
                              text=True) as follower:
            try:
                for line in follower.stdout:
                    found = re.match(r"step (\d+)\b", line)
                    if found and int(found.group(1)) >= step:
                        return
            finally:
                follower.kill()
        raise AssertionError("the training ended: " + self.text()[-1000:])

    def text(self):
        return self.output.read_text(errors="replace")

    def printed(self):
        return [int(step) for step in re.findall(r"^step (\d+)\b", self.text(), re.M)]

    def expected_digest(self):
        return run_unmoved("charlm-plain", *TRAINING, "--steps", str(self.steps))["digest"]

    def let_end(self):
        self.cluster.hurry("by-hand").touch()

    def check_end(self, test):
        """Each step printed once, in order, to the last, and the result of an unmoved run."""
        test.assertEqual(self.printed(), list(range(1, self.steps + 1)), "steps lost or repeated")
        test.assertEqual(final_object(self.text())["digest"], self.expected_digest())

    def end(self):
        self.process.kill()
        self.process.wait()


def error_of(result):
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return json.loads(result.stdout)["error"]["message"]
    return result.stdout + result.stderr
