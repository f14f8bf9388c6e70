# SPDX-License-Identifier: Apache-2.0
"""Programs of Debian's packages (programs/real_programs.py): each moves to another node and back while it runs, or is
refused before the pause with a reason. None fails in the pause, none is lost, none differs after. Programs that are not
installed are named and left out; GPUMIGRATE_TEST_PROGRAMS=install brings them by apt."""
import os
import random
import re
import subprocess
import sys
import unittest

import real_programs
from cluster import ClusterTest

SHORT = 3  # the number of programs in the short edition
DONE, REFUSED = 0, 5
PLACES = ("node-b", "node-a")


def install():
    """One package may not fit this system: then each is tried alone, and what is missing is named later."""
    words = sorted({package for name in real_programs.PROGRAMS for package in real_programs.packages(name)})
    if try_install(words) != 0:
        for word in words:
            try_install([word])


def try_install(packages):
    return subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], check=False,
                          stdout=subprocess.DEVNULL, env=dict(os.environ, DEBIAN_FRONTEND="noninteractive")).returncode


class Programs(ClusterTest):
    def setUp(self):
        super().setUp()
        self.verdicts = {}
        self.addCleanup(lambda: print(*(f"{name}: {verdict}" for name, verdict in self.verdicts.items()), sep="\n", flush=True))

    def installed(self):
        there = [name for name in real_programs.PROGRAMS if real_programs.is_there(name)]
        missing = sorted(set(real_programs.PROGRAMS) - set(there))
        if missing:
            print(f"NOT TRIED, not installed: {' '.join(missing)}", file=sys.stderr, flush=True)
        return there

    def steps(self, name):
        log = self.cluster.log(name)
        self.assertNotIn("WRONG", log)
        self.assert_steps_in_order(log)
        return int(re.findall(r"^step (\d+)\r?$", log, re.M)[-1])

    def wait_for_more_steps(self, name):
        self.cluster.wait_for_line(name, rf"^step {self.steps(name) + 5}\b")
        return self.steps(name)

    def move(self, name, place):
        """The move does as its dry run answered."""
        asked = self.cluster.run("migrate", name, "--to", place, "--dry-run")
        self.assertIn(asked.returncode, (DONE, REFUSED), asked.stderr)
        result = self.cluster.run("migrate", name, "--to", place)
        self.assertIn(result.returncode, (DONE, REFUSED), f"{name} to {place}: {result.stdout}{result.stderr}")
        self.assertEqual(asked.returncode, result.returncode, f"{name}: {asked.stdout}{asked.stderr}, then {result.stdout}{result.stderr}")
        if result.returncode == REFUSED:
            reason = re.search(r"(?:refused|cannot move|cannot be moved)\S* *(.*)", result.stdout + result.stderr)
            self.assertTrue(reason, result.stderr)
        return result

    def try_program(self, name):
        self.cluster.call("run", "--detach", "--name", name, "--node", "node-a", "--",
                          *real_programs.command(name, self.cluster.shared))
        self.cluster.wait_for_line(name, r"^step 5\b")
        verdict = "moved there and back"
        for place in PLACES:
            result = self.move(name, place)
            self.wait_for_more_steps(name)
            self.assertEqual(self.cluster.job(name)["state"], "running")
            if result.returncode == REFUSED:
                verdict = f"refused: {' '.join((result.stdout + result.stderr).split())[-300:]}"
                break
        self.verdicts[name] = verdict

    def try_programs(self, names):
        for name in names:
            with self.subTest(name):
                self.verdicts[name] = "failed"
                try:
                    self.try_program(name)
                finally:
                    self.cluster.run("stop", name, "--grace", "0s")
                    self.cluster.run("rm", name)
        self.assertIn("moved there and back", self.verdicts.values())


class DrawnPrograms(Programs):
    """The short edition: some that every Debian has, drawn by the commit."""

    def test_programs_selected_by_the_commit_move(self):
        there = [name for name in real_programs.PROGRAMS if real_programs.is_there(name)]
        self.try_programs(["plain", *random.Random(os.environ["GPUMIGRATE_TEST_SEED"]).sample(there, SHORT)])


class AllPrograms(Programs):
    def test_all_real_programs_move(self):
        if os.environ.get("GPUMIGRATE_TEST_PROGRAMS") == "install":
            install()
        names = self.installed()
        self.assertGreater(len(names), 15)
        self.try_programs(names)


if __name__ == "__main__":
    unittest.main()
