# SPDX-License-Identifier: Apache-2.0
"""An operator's commands on three nodes, typed into a terminal of 80 columns. Each exits as it should, and
prints no line that the terminal would wrap. TRIAL_TRANSCRIPT=FILE keeps what the terminal showed."""
import contextlib
import fcntl
import itertools
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

from cluster import BIN, EXAMPLES, ClusterTest
from operator_commands import COMMANDS, SCREENS

COLUMNS, ROWS = 80, 24
OTHER_COLUMNS = (60, 200)
# A line an event, errors and confirmations are one line each; docs/limitations.md names the others.
ONE_LINE = ("gpumigrate: ", "removed: ", "image ", "plain (", "low (")
NOT_FITTED = ("events", "doctor", "-o json")
ENDS_WITHIN_S = 120
INTERRUPT = " ^C"
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def typed(line, environment, folder, columns=COLUMNS):
    """What the terminal showed, and the exit code."""
    interrupted = line.endswith(INTERRUPT)
    command = line.removesuffix(INTERRUPT).format(examples=EXAMPLES)
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    process = subprocess.Popen(["bash", "-c", f"exec {command}"], stdin=child, stdout=child, stderr=child,
                               env=environment, cwd=folder, start_new_session=True)
    os.close(child)
    shown, deadline = b"", time.monotonic() + ENDS_WITHIN_S
    with contextlib.suppress(OSError):  # the terminal has no writer any more
        while time.monotonic() < deadline:
            if select.select([parent], [], [], 1)[0]:
                shown += os.read(parent, 65536)
                if interrupted:
                    process.send_signal(signal.SIGINT)
                    interrupted = False
    os.close(parent)
    try:
        return shown.decode(errors="replace"), process.wait(max(1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"{line} did not end within {ENDS_WITHIN_S} s: {shown[-500:]}") from None


def screen_lines(shown):
    """The lines as they stand at last: a progress line is drawn over itself."""
    lines = []
    for line in CONTROL.sub("", shown).replace("\r\n", "\n").split("\n"):
        lines.append(line.rstrip("\r").split("\r")[-1].rstrip())
    return lines[:-1] if lines and not lines[-1] else lines


def too_wide(line, lines, columns):
    if any(word in line for word in NOT_FITTED):
        return []
    return [f"{line}: {len(text)} of {columns} columns: {text}" for text in lines
            if len(text) > columns and not text.startswith(ONE_LINE)]


class OperatorTrial(ClusterTest):
    nodes, gpus, memory = 3, 2, "1GiB"

    def test_each_command_exits_as_it_should_and_fits_the_terminal(self):
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
