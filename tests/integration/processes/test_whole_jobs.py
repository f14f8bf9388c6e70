# SPDX-License-Identifier: Apache-2.0
"""Jobs whose GPU process was started by another program, in a session or process group of its own; and jobs without a
CUDA context, which no verb waits for. All in one cluster."""
import os
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

from cluster import ClusterTest, make_cluster
from crashing_processes import hanging_criu
from waiting import eventually

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "programs" / "python_job.py"
PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
ENDLESS = (PYTHON, str(PROGRAM), "plain", "1000000")
NEW_SESSION = "import subprocess, sys; subprocess.run(sys.argv[1:], start_new_session=True)"

# torchrun starts its workers with start_new_session; mpirun and tmux also use other sessions. Jobs with a
# terminal do not move: the terminal is an obstacle, reported by its name.
MOVES = {"setsid": ("setsid", "--wait"), "timeout": ("timeout", "1h"), "nohup": ("nohup", "setsid", "--wait"),
         "control": ("bash", "-c", 'set -m; "$0" "$@" & wait'), "session": (PYTHON, "-c", NEW_SESSION)}


class OneCluster(ClusterTest):
    gpus = 2

    @classmethod
    def setUpClass(cls):
        cls.shared = make_cluster(cls.nodes, cls.gpus, cls.memory, cls.agent_settings, "")
        cls.addClassCleanup(cls.shared.down)

    def setUp(self):
        self.cluster = self.shared
        self.addCleanup(self.show_logs_of_a_failure)

    def start(self, name, *command, place="node-a:0"):
        self.cluster.call("run", "--detach", "--name", name, "--node", place, "--gpu-memory", "128MiB", "--", *command)
        self.addCleanup(self.cluster.run, "stop", name, "--grace", "0s")

    def next_step(self, name):
        seen = len(re.findall(r"^step \d+$", self.cluster.log(name), re.M))
        eventually(lambda: len(re.findall(r"^step \d+$", self.cluster.log(name), re.M)) > seen + 2,
                   f"{name} makes steps")


class StartedByOthers(OneCluster):
    def test_job_started_by_each_wrapper_moves_to_another_node(self):
        for name, before in MOVES.items():
            self.start(name, *before, *ENDLESS)
        for name in MOVES:
            with self.subTest(name):
                self.cluster.wait_for_line(name, r"^step \d+")
                self.assertEqual(self.cluster.job(name)["state"], "running")
                report = self.cluster.migrate(name, "node-b:0", "--live")
                self.assertEqual((report["result"], report["verified"]), ("done", True), report)
                self.next_step(name)
                self.assert_steps_in_order(self.cluster.log(name))
                eventually(lambda name=name: self.cluster.json("describe", name)["ranks"][0]["state_bytes"] > 0,
                           f"the memory of {name} counts")
                self.cluster.call("stop", name, "--grace", "10s")
                eventually(lambda name=name: not self.of_job(name), f"nothing is left of {name}")

    def of_job(self, name):
        job = self.cluster.json("describe", name)
        return [pid for pid, command in self.cluster.processes().items()
                if "python_job.py" in command and job["state"] not in ("exited", "failed")]

    def test_a_terminal_is_named_as_the_obstacle(self):
        self.start("terminal", "script", "-qec", " ".join(ENDLESS), "/dev/null")
        self.cluster.wait_for_line("terminal", r"step \d+")
        refused = self.cluster.run("migrate", "terminal", "--to", "node-b:0")
        self.assertEqual(refused.returncode, 5, refused)
        self.assertIn("terminal /dev/pts/", refused.stdout + refused.stderr)


class WithoutAContext(OneCluster):
    WHY = r"has no CUDA context yet \(since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\)"

    def test_no_verb_waits_for_a_missing_context(self):
        self.start("shell", "/bin/sh", "-c", "exec tail -f /dev/null", place="node-b:1")
        self.assertRegex(eventually(lambda: self.cluster.json("describe", "shell")["reason"], "it is described"), self.WHY)
        for words in (("migrate", "shell", "--to", "node-a"), ("snapshot", "shell"), ("suspend", "shell"),
                      ("migrate", "shell", "--to", "node-a")):
            refused = self.cluster.run(*words)
            self.assertEqual(refused.returncode, 5, (words, refused))
            self.assertRegex(refused.stderr, self.WHY, words)
            self.assertNotIn("waited for", refused.stderr)
        refused = self.cluster.run("protect", "shell", "--every", "10m")
        self.assertEqual(refused.returncode, 5, refused)
        self.assertRegex(refused.stderr, self.WHY)
        drained = self.cluster.run("drain", "node-b", "--timeout", "30s")
        self.addCleanup(self.cluster.run, "uncordon", "node-b")
        self.assertNotIn(drained.returncode, (0, 124), drained)
        blocked = self.cluster.json("drains")[0]["jobs"][0]
        self.assertRegex(blocked["reason"], self.WHY, blocked)


class RestoreThatHangs(OneCluster):
    """CRIU restores nothing at the target: a program in its place waits."""

    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="gm-criu-"))
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        criu, cls.hangs = hanging_criu(folder)
        cls.agent_settings = f'criu = "{criu}"\n'
        super().setUpClass()

    def test_the_job_continues_at_the_source_if_the_restore_hangs(self):
        self.start("job", *ENDLESS)
        self.cluster.wait_for_line("job", r"^step \d+")
        self.hangs.touch()
        # The limit is much less than the minute after which a hanging CRIU is given up.
        for limits, why in (((), r"CRIU was still restoring the program after [1-5]?\d{4} ms"),
                            (("--max-downtime", "3s", "--if-not-converged", "abort"), "exceeded its limit of 3000 ms")):
            with self.subTest(limits):
                self.cluster.migrate("job", "node-b:0", *limits, exits=(1,))
                newest = self.cluster.json("migrations")[0]
                self.assertRegex(newest["error"], why)
                self.next_step("job")
        self.hangs.unlink()
        self.assertEqual(self.cluster.migrate("job", "node-b:0")["result"], "done")
        self.next_step("job")
        self.assert_steps_in_order(self.cluster.log("job"))


if __name__ == "__main__":
    unittest.main()
