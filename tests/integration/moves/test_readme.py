# SPDX-License-Identifier: Apache-2.0
"""README's "Five commands" as a reader types them, one after the other, from the top of the tree."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import unittest

from crashing_processes import find_criu

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ["GPUMIGRATE_BUILD"]).resolve()
LIMIT_S = 120


def commands():
    """Without comments; `export` sets what the test sets itself."""
    block = re.search(r"^## Five commands.*?^```\n(.*?)^```", (ROOT / "README.md").read_text(),
                      re.M | re.S)[1]
    lines = [line.split("  #")[0].strip() for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith("export ")]


class Readme(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.mkdtemp(prefix="gm-readme-")
        self.environment = dict(os.environ, GPUMIGRATE_HOME=self.home,
                                PATH=f"{BUILD / 'bin'}:{os.environ['PATH']}")
        self.addCleanup(shutil.rmtree, self.home, ignore_errors=True)
        self.addCleanup(subprocess.run, ["gpumigrate", "local", "down"], env=self.environment,
                        capture_output=True)

    def popen(self, command):
        """The build's folder may have another name than README's."""
        return subprocess.Popen(["bash", "-c", command.replace("build/bin/", f"{BUILD}/bin/")], cwd=ROOT,
                                env=self.environment,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                start_new_session=True)

    def follow(self, command, wanted):
        """Until a line of that kind: the job goes on for long."""
        with self.popen(command) as follower:
            deadline = threading.Timer(LIMIT_S, os.killpg, (follower.pid, signal.SIGKILL))
            deadline.start()
            found = next((line for line in follower.stdout if re.match(wanted, line)), None)
            deadline.cancel()
            os.killpg(follower.pid, signal.SIGKILL)
        self.assertIsNotNone(found, f"{command} showed no {wanted}")

    def test_five_commands_of_the_readme_work_unchanged(self):
        if os.geteuid() != 0 or not find_criu():
            self.skipTest("a program that does not use ckpt.h moves between nodes as root and with CRIU only: tools/criu install")
        self.assertEqual([command.split()[1] for command in commands()],
                         ["local", "run", "migrate", "logs", "local"])
        for command in commands():
            with self.subTest(command):
                if command.endswith(" -f"):
                    self.follow(command, r"step \d+")
                    continue
                done = self.popen(command)
                output, _ = done.communicate(timeout=LIMIT_S)
                self.assertEqual(done.returncode, 0, output)
                if " migrate " in command:
                    self.assertRegex(output, r"pause +[\d.]+ m?s")
