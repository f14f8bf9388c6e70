# SPDX-License-Identifier: Apache-2.0
"""An operator's commands on three nodes, typed into a terminal of 80 columns. Each exits as it should, and
prints no line that the terminal would wrap. TRIAL_TRANSCRIPT=FILE keeps what the terminal showed."""
import itertools
import os
import pathlib
import unittest

from cluster import BIN, EXAMPLES, ClusterTest
from operator_commands import COMMANDS, SCREENS
from terminal import screen_lines, typed

COLUMNS = 80
OTHER_COLUMNS = (60, 200)
# Errors and confirmations are one line each.
ONE_LINE = ("gpumigrate: ", "removed: ", "image ", "plain (", "low (")
NOT_FITTED = ("-o json",)


def too_wide(line, lines, columns):
    if any(word in line for word in NOT_FITTED):
        return []
    return [f"{line}: {len(text)} of {columns} columns: {text}" for text in lines
            if len(text) > columns and not text.startswith(ONE_LINE)]


class OperatorTrial(ClusterTest):
    nodes, gpus, memory = 3, 2, "1GiB"

    def test_each_command_has_its_exit_code_and_fits_the_terminal(self):
        environment = dict(self.cluster.environment, PATH=f"{BIN}:{os.environ['PATH']}", TERM="xterm")
        transcript, wrong = [], []
        for command in COMMANDS:
            if command is SCREENS:
                for line, columns in itertools.product(SCREENS, OTHER_COLUMNS):
                    shown, _ = typed(line, environment, self.cluster.home, columns)
                    wrong += too_wide(line, screen_lines(shown), columns)
                continue
            line, exits = command
            shown, code = typed(line, environment, self.cluster.home)
            lines = screen_lines(shown)
            transcript += [f"$ {line}", *lines] + ([f"[exit {code}]"] if code else [])
            if code not in exits:
                wrong.append(f"{line} exits with {code}, not {exits}: {shown[-600:]}")
            wrong += too_wide(line, lines, COLUMNS)
        if os.environ.get("TRIAL_TRANSCRIPT"):
            text = "\n".join(transcript).replace(str(EXAMPLES), "{examples}")
            text = text.replace(str(self.cluster.home), "HOME")
            pathlib.Path(os.environ["TRIAL_TRANSCRIPT"]).write_text(text + "\n")
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
