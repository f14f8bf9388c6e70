# SPDX-License-Identifier: Apache-2.0
"""tools/show-progress: what is shown of a build, on a terminal and in a pipe."""
import importlib.machinery
import importlib.util
import io
import pathlib
import subprocess
import sys
import unittest

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "tools" / "show-progress"


def load():
    loader = importlib.machinery.SourceFileLoader("show_progress", str(PROGRAM))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


class Terminal(io.StringIO):
    def isatty(self):
        return True


class ShowProgress(unittest.TestCase):
    def shown(self, output, steps):
        """Each step is a second later than the one before."""
        seconds = iter(range(1000))
        progress = load().Progress("Building", output, lambda: next(seconds))
        for done, total in steps:
            progress.show(done, total)
        progress.close_line()
        return output.getvalue()

    def test_pipe_gets_a_line_for_every_tenth_of_the_work(self):
        lines = self.shown(io.StringIO(), [(step, 100) for step in range(1, 101)]).splitlines()
        self.assertEqual(len(lines), 11)
        self.assertEqual(lines[2], "Building: 20% after 20 s, about 1 min 20 s left")
        self.assertEqual(lines[-1], "Building: 100% after 1 min 40 s")

    def test_terminal_gets_one_line_that_is_redrawn(self):
        text = self.shown(Terminal(), [(5, 10), (10, 10)])
        self.assertEqual(text.count("\n"), 1)
        self.assertIn("[###############               ]  50% about 1 s left", text)
        self.assertIn("[##############################] 100%", text)

    def test_messages_of_compilers_are_passed_on(self):
        done = subprocess.run([sys.executable, PROGRAM],
                              input="ninja: Entering directory `build'\n[1/2] a\na.cc:1: error: no\n[2/2] b\n",
                              capture_output=True, text=True)
        self.assertEqual([line for line in done.stdout.splitlines() if not line.startswith("Building")],
                         ["a.cc:1: error: no"])
        self.assertEqual((done.returncode, done.stderr), (0, ""))


unittest.main()
