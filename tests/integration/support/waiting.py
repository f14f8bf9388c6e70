# SPDX-License-Identifier: Apache-2.0
"""The one way to wait for what no command reports: until it holds, or fails with what was waited for and what
was seen last."""
import select
import time

DEADLINE_S = 60
INTERVAL_S = 0.02


def wait_until(read, holds, what, deadline_s):
    latest = time.monotonic() + deadline_s
    while not holds(seen := read()):
        if time.monotonic() > latest:
            raise AssertionError(f"not within {deadline_s} s: {what}; last seen: {seen!r}")
        time.sleep(INTERVAL_S)
    return seen


def eventually(condition, what, deadline_s=DEADLINE_S):
    """Waits for `condition` and returns its value, which is true. `what` names what should hold."""
    return wait_until(condition, bool, what, deadline_s)


def eventually_equal(read, expected, what, deadline_s=DEADLINE_S):
    """`read()` becomes `expected`."""
    wait_until(read, lambda seen: seen == expected, f"{what}: {expected!r}", deadline_s)


def next_line(stream, what, deadline_s=DEADLINE_S):
    """The next line of a process's output. Lines that the stream has buffered already must have been read."""
    readable, _, _ = select.select([stream], [], [], deadline_s)
    if not readable:
        raise AssertionError(f"not within {deadline_s} s: {what}")
    return stream.readline()
