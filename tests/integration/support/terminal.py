# SPDX-License-Identifier: Apache-2.0
"""Commands typed into a terminal of some size."""
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

from cluster import EXAMPLES

ROWS = 24
ENDS_WITHIN_S = 120
INTERRUPT = " ^C"
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def typed(line, environment, folder, columns=80):
    """The terminal's text and the exit code. A line that ends with ^C is interrupted after it has printed."""
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
