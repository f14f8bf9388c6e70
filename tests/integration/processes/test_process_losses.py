# SPDX-License-Identifier: Apache-2.0
"""kill -9 of movers, coordinator, context helper and keeper at the crash points of a move of a whole process
between two nodes; the source's agent while the rank is busy, and a user who gives up. Needs root and CRIU."""
import unittest

from crashing import EITHER, SOURCE, TARGET
from crashing_processes import CrashesWithCriu
from fault_points import Point

MOVERS = [("mover.source", Point.SOURCE_MOVER_ATTACHED, SOURCE),
          ("mover.source", Point.SOURCE_MOVER_ROUND, SOURCE),
          ("mover.source", Point.SOURCE_MOVER_FINAL, SOURCE),
          ("mover.source", Point.SOURCE_MOVER_MANIFEST, EITHER),
          ("mover.target", Point.TARGET_MOVER_ATTACHED, SOURCE),
          ("mover.target", Point.TARGET_MOVER_ROUND, SOURCE),
          ("mover.target", Point.TARGET_MOVER_FINAL, SOURCE),
          ("mover.target", Point.TARGET_MOVER_VERIFIED, SOURCE)]
COORDINATOR = [("coordinator", number, ends_on) for number, ends_on in [
    (Point.COORDINATOR_BEGUN, EITHER), (Point.COORDINATOR_PREPARED, EITHER),
    (Point.COORDINATOR_GRANTED_DURABLE, EITHER), (Point.COORDINATOR_COMMIT_SENT, EITHER),
    (Point.COORDINATOR_HEARD_COMMITTED, TARGET), (Point.COORDINATOR_HEARD_RELEASED, TARGET),
    (Point.COORDINATOR_CLOSED_DURABLE, TARGET)]]
HELPER = [(f"context.{order}", number, SOURCE) for order in ("lock", "checkpoint", "restore", "unlock")
          for number in (Point.CONTEXT_ORDERED, Point.CONTEXT_PERFORMED)]
KEEPER = [("keeper.j1.standby", Point.KEEPER_DEPOSITED, SOURCE)]
POINTS = MOVERS + COORDINATOR + HELPER + KEEPER


class DaemonCrashes(CrashesWithCriu):
    def test_job_survives_a_mover_crash(self):
        self.crash(MOVERS)

    def test_job_survives_a_coordinator_crash(self):
        self.crash(COORDINATOR)

    def test_job_survives_a_context_helper_crash(self):
        self.crash(HELPER)

    def test_job_survives_a_crash_of_the_new_keeper(self):
        self.crash(KEEPER)

    def test_job_survives_an_agent_crash_while_the_rank_releases_or_maps(self):
        self.agent_dies_while_the_rank_is_busy()

    def test_job_survives_an_abort_while_the_context_moves(self):
        self.abort_at([(number, EITHER) for number in (Point.SOURCE_MEMORY_RELEASED,
                                                       Point.SOURCE_CONTEXT_SAVED, Point.SOURCE_DUMPED,
                                                       Point.TARGET_VERIFIED,
                                                       Point.TARGET_COMMITTED_DURABLE)])
