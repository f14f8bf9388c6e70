# SPDX-License-Identifier: Apache-2.0
"""kill -9 at the crash points of a hot card swap: agent, movers, coordinator, context helper. One agent has both sides here, so
what it had prepared is lost with it; the memory is with the job's keeper and the context with the driver."""
import unittest

from crashing import EITHER, SOURCE, TARGET, TransparentCrashes

AGENT_BEFORE = [("agent.source", number, ends_on) for number, ends_on in [
    (101, EITHER), (102, SOURCE), (103, SOURCE), (104, SOURCE), (105, EITHER), (201, EITHER), (202, SOURCE), (203, SOURCE)]]
AGENT_SAVING = [("agent.source", number, SOURCE) for number in (108, 109)]
AGENT_AFTER = [("agent.source", number, TARGET) for number in (204, 205, 206, 208, 209, 106, 107)]
MOVERS = [("mover.source", 301, SOURCE), ("mover.source", 302, SOURCE), ("mover.source", 303, SOURCE),
          ("mover.source", 304, EITHER), ("mover.target", 401, SOURCE), ("mover.target", 402, SOURCE),
          ("mover.target", 403, SOURCE), ("mover.target", 404, SOURCE)]
COORDINATOR = [("coordinator", number, ends_on) for number, ends_on in [
    (601, EITHER), (602, EITHER), (603, EITHER), (604, EITHER), (605, TARGET), (606, TARGET), (607, TARGET)]]
HELPER = [(f"context.{order}", number, SOURCE) for order in ("state", "lock", "checkpoint", "restore", "unlock")
          for number in (701, 702)]


class SwapCrashes(TransparentCrashes):
    nodes, gpus = 1, 2
    places = ("node-a:0", "node-a:1")

    def test_agent_before_committed(self):
        self.crash(AGENT_BEFORE)

    def test_agent_while_memory_and_context_are_saved(self):
        self.crash(AGENT_SAVING)

    def test_agent_after_committed(self):
        self.crash(AGENT_AFTER)

    def test_movers(self):
        self.crash(MOVERS)

    def test_coordinator(self):
        self.crash(COORDINATOR)

    def test_context_helper(self):
        self.crash(HELPER)


if __name__ == "__main__":
    unittest.main(verbosity=2)
