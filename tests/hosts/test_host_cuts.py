# SPDX-License-Identifier: Apache-2.0
"""A network that is cut while a move is in one of its states, over real connections between hosts. The move
ends as the switch's rules demand, one instance runs, and no step is lost or made twice. The cut lasts until the
coordinator has given the node up, for a minute, or for good."""
import itertools
import os
import signal
import unittest

from crashing import TransparentCrashes
from fault_points import Point
from host_cluster import HostsTest, SpreadCluster
from waiting import eventually

STATES = [("agent.source", Point.SOURCE_PREPARING), ("agent.target", Point.TARGET_PREPARING),
          ("agent.source", Point.SOURCE_PRECOPY), ("coordinator", Point.COORDINATOR_GRANTED_DURABLE),
          ("agent.source", Point.SOURCE_BARRIER_DURABLE), ("agent.target", Point.TARGET_VERIFIED),
          ("agent.target", Point.TARGET_COMMITTED_DURABLE), ("agent.target", Point.TARGET_RUNS),
          ("agent.source", Point.SOURCE_RECEIVED_RUNS), ("agent.source", Point.SOURCE_RELEASED_DURABLE)]
LONG_CUTS = (Point.SOURCE_PRECOPY, Point.SOURCE_BARRIER_DURABLE, Point.TARGET_COMMITTED_DURABLE)
BETWEEN_THE_NODES, SOURCE_FROM_ALL, TARGET_FROM_ALL = "between", "source", "target"
MINUTE = 60


class CutMoves(HostsTest, TransparentCrashes):
    places = ("node-a", "node-b")

    def cut(self, what, source, target):
        ends = {BETWEEN_THE_NODES: (source, target), SOURCE_FROM_ALL: (source,), TARGET_FROM_ALL: (target,)}
        self.cluster.hosts.cut(*ends[what])
        return ends[what]

    def hold_at(self, role, number):
        """A move that stands there: its command, and the descriptor of the process that is held."""
        source, target = self.places
        held = self.daemons_of(self.role_of(role, source, target))
        self.cluster.arm(self.role_of(role, source, target), number, "stop")
        moved = self.cluster.popen("migrate", "job", "--to", target, "-o", "json", "--timeout", "120s")
        self.wait_until_fired(self.role_of(role, source, target), number, moved)
        return moved, held[0]

    def states_of_nodes(self):
        return {node["name"]: node["state"] for node in self.cluster.json("nodes")}

    def wait_for_the_cut(self, what, source, target, seconds):
        if what != BETWEEN_THE_NODES:
            node = source if what == SOURCE_FROM_ALL else target
            eventually(lambda: self.states_of_nodes()[node] == "unreachable", f"{node} is given up")
        if seconds:
            self.cluster.call("wait", "job", "--timeout", f"{seconds}s", exits=(124,))

    def cut_while(self, role, number, what, seconds=0, for_good=False):
        source, target = self.places
        # The job outlasts the move. The move continues for 15 seconds where the disconnection is not noticed
        # at once.
        self.start_training(50 * (seconds + 40), step_ms=20)
        moved, held = self.hold_at(role, number)
        ends = self.cut(what, source, target)
        signal.pidfd_send_signal(held, signal.SIGCONT)
        os.close(held)
        if not for_good:
            self.wait_for_the_cut(what, source, target, seconds)
            self.cluster.hosts.restore(*ends)
            eventually(self.cluster.all_ready, "all nodes are back")
        self.check_outcome(moved, source, target, None)
        self.finish_training()


class Cuts(CutMoves):
    """All networks between the ends are cut."""


def add_case(case, role, point, what, name, **how):
    def test(self):
        self.cut_while(role, point, what, **how)

    setattr(case, f"test_{point.name.lower()}_{what}_{name}", test)


for (role, point), what in itertools.product(STATES, (BETWEEN_THE_NODES, SOURCE_FROM_ALL, TARGET_FROM_ALL)):
    add_case(Cuts, role, point, what, "until_given_up")
    if point in LONG_CUTS:
        add_case(Cuts, role, point, what, "for_a_minute", seconds=MINUTE)
for role, point in STATES:
    add_case(Cuts, role, point, BETWEEN_THE_NODES, "for_good", for_good=True)


class OneOfTwoAddresses(CutMoves):
    """The lanes of a move are spread over two networks, of which one is cut."""
    kind = SpreadCluster
    transports = ("tls", "tls")

    def cut(self, what, source, target):
        self.cluster.hosts.cut(source, target, 1)
        return source, target, 1


for point in (Point.SOURCE_PRECOPY, Point.SOURCE_BARRIER_DURABLE):
    add_case(OneOfTwoAddresses, "agent.source", point, BETWEEN_THE_NODES, "for_good", for_good=True)


if __name__ == "__main__":
    unittest.main()
