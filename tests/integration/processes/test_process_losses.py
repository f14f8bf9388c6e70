# SPDX-License-Identifier: Apache-2.0
"""kill -9 of movers, coordinator, context helper and keeper at the crash points of a move of a whole process between two nodes; the
source's agent while the rank is busy, and a user who gives up. Needs root and CRIU."""
import unittest

from crashing import EITHER, SOURCE, TARGET
from crashing_processes import CrashesWithCriu

MOVERS = [("mover.source", 301, SOURCE), ("mover.source", 302, SOURCE), ("mover.source", 303, SOURCE),
          ("mover.source", 304, EITHER), ("mover.target", 401, SOURCE), ("mover.target", 402, SOURCE),
          ("mover.target", 403, SOURCE), ("mover.target", 404, SOURCE)]
COORDINATOR = [("coordinator", number, ends_on) for number, ends_on in [
    (601, EITHER), (602, EITHER), (603, EITHER), (604, EITHER), (605, TARGET), (606, TARGET), (607, TARGET)]]
HELPER = [(f"context.{order}", number, SOURCE) for order in ("lock", "checkpoint", "restore", "unlock")
          for number in (701, 702)]
KEEPER = [("keeper.j1.standby", 505, SOURCE)]
POINTS = MOVERS + COORDINATOR + HELPER + KEEPER


class DaemonCrashes(CrashesWithCriu):
    def test_movers(self):
        self.crash(MOVERS, 2500)

    def test_coordinator(self):
        self.crash(COORDINATOR, 4000)

    def test_context_helper(self):
        self.crash(HELPER, 3000)

    def test_keeper_of_the_restored_process(self):
        self.crash(KEEPER, 1000)

    def test_agent_while_the_rank_releases_or_maps(self):
        self.agent_dies_while_the_rank_is_busy()

    def test_abort_while_the_context_moves(self):
        self.abort_at([(number, EITHER) for number in (108, 109, 110, 203, 204)])
