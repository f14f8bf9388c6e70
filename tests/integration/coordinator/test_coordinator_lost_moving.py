# SPDX-License-Identifier: Apache-2.0
"""The store is lost, or an older copy of it comes back, at each state of a move, together with the process
that stood there: one instance goes on, with its digest, and moves again."""
import unittest

from cluster import run_unmoved
from losing_store import StoreLosingTest, lose_at_each_point

ARGUMENTS = ["--bytes", "32MiB", "--hot", "4%", "--step-ms", "5", "--seed", "11", "--pattern", "random",
             "--steps", "2000",
             "--print-every", "1"]


class StoreLostDuringAMove(StoreLosingTest):
    @classmethod
    def setUpClass(cls):
        cls.expected = run_unmoved("hotset", *ARGUMENTS)["digest"]

    def lose_at(self, role, number, how):
        cluster = self.cluster
        cluster.start("job", "hotset", *ARGUMENTS)
        cluster.wait_for_line("job", r"^step 5\b")
        if how == "older":
            self.copy_store()
        victims = self.daemons_of(role)
        cluster.arm(role, number)
        moved = self.move_until_fired(role, number)
        self.wait_until_dead(victims)
        self.stop_coordinator()
        self.bring_copy_back() if how == "older" else self.remove_store()
        self.up_again()
        moved.kill()
        moved.communicate()
        if how == "removed":
            self.wait_for_event("job-taken-in")
        self.wait_until_nothing_is_open()
        other = {"node-a": "node-b", "node-b": "node-a"}[cluster.job("job")["node"]]
        self.assertEqual(cluster.migrate("job", other, "--live")["result"], "done")
        ended = cluster.finish("job")
        self.assertEqual(ended["digest"], self.expected)
        self.assertEqual(cluster.job("job")["node"], other)


lose_at_each_point(StoreLostDuringAMove, ("removed", "older"))
