# SPDX-License-Identifier: Apache-2.0
"""`gpumigrate top` on a terminal of 60, 80 and 200 columns (tmux): what it draws, that it draws again when
something changes, and that q and Ctrl-C end it."""
import os
import subprocess
import unittest

from cluster import BIN, ClusterTest
from waiting import eventually

LINES = 30


class Top(ClusterTest):
    def tmux(self, *words):
        return subprocess.run(["tmux", "-L", self.server, "-f", "/dev/null", *map(str, words)],
                              env=self.cluster.environment, capture_output=True, text=True, timeout=60)

    def screen(self):
        return [line.rstrip() for line in self.tmux("capture-pane", "-p", "-t", "top").stdout.split("\n")]

    def open_top(self, columns):
        # A server ends with its last session. A server that is about to end would not accept another session.
        self.server = f"gm-{os.getpid()}-{columns}"
        opened = self.tmux("new-session", "-d", "-s", "top", "-x", columns, "-y", LINES, f"{BIN / 'gpumigrate'} top")
        self.assertEqual(opened.returncode, 0, opened.stderr)
        self.addCleanup(subprocess.run, ["tmux", "-L", self.server, "kill-server"], capture_output=True)

    def shows(self, *words):
        return all(any(word in line for line in self.screen()) for word in words)

    def ended(self):
        return self.tmux("has-session", "-t", "top").returncode != 0

    def test_top_fits_the_terminal_updates_and_exits_on_request(self):
        for columns, key in ((60, "q"), (80, "C-c"), (200, "q")):
            with self.subTest(columns=columns):
                name = f"job-{columns}"
                self.open_top(columns)
                eventually(lambda: self.shows("gpumigrate: ", "GPU", "node-a:0", "node-b:0"), "top is drawn")
                self.cluster.start(name, "charlm", "--params", "60000", "--steps", "1000000")
                eventually(lambda: self.shows(name, "NAME"), "the new job is drawn")
                wide = [line for line in self.screen() if len(line) > columns]
                self.assertEqual(wide, [])
                headings = [line.split() for line in self.screen() if line.startswith("NAME")]
                self.assertEqual(headings[0][:3], ["NAME", "ID", "STATE"])
                self.cluster.call("stop", name, "--grace", "0s")
                eventually(lambda: not self.shows(name), "the job that has ended is drawn no more")
                self.tmux("send-keys", "-t", "top", key)
                eventually(self.ended, f"{key} ends top")


if __name__ == "__main__":
    unittest.main()
