# SPDX-License-Identifier: Apache-2.0
"""Three nodes with eight jobs, two of them at rest in images, and one under way in each state of a move: the
store is removed, emptied, or an older copy of it comes back, together with the process
that stood there. No job runs twice, none is stopped, what rests resumes, and all of them move again."""
import re
import unittest

from cluster import run_unmoved
from losing_store import StoreLosingTest, lose_at_each_point
from waiting import eventually_equal

STEPS = 4000
TRAINING = ["--params", "5000", "--seed", "3", "--print-every", "1", "--step-ms", "20", "--steps", str(STEPS)]
# "job" moves from the first GPU of node-a to the first GPU of node-b. The crash points of movers name this
# GPU.
RUN = {"job": "node-a:0", "other-a": "node-a:1", "b-1": "node-b:1", "b-2": "node-b:2", "c-1": "node-c",
       "c-2": "node-c"}
REST = {"rests-a": "node-a:2", "rests-b": "node-b:3"}


class StoreOfAFleetLost(StoreLosingTest):
    nodes, gpus, memory = 3, 4, "512MiB"

    @classmethod
    def setUpClass(cls):
        cls.unmoved = cls.steps_in(run_unmoved_log())

    @staticmethod
    def steps_in(log):
        return re.findall(r"^step (\d+) (.*)$", log, re.M)

    def start_all(self):
        for name, node in {**RUN, **REST}.items():
            self.cluster.start(name, "charlm", *TRAINING, node=node)
        for name in {**RUN, **REST}:
            self.cluster.wait_for_line(name, r"^step 3\b")
        for name in REST:
            self.cluster.call("suspend", name)

    def empty_store(self):
        paths = self.store()
        self.remove_store()
        next(path for path in paths if path.name == "state.db").touch(mode=0o600)

    def lose_at(self, role, number, how):
        cluster = self.cluster
        self.start_all()
        if how == "older":
            self.copy_store()
            cluster.migrate("b-1", "node-c")
        victims = self.daemons_of(role)
        cluster.arm(role, number)
        moved = self.move_until_fired(role, number, "node-a:0", "node-b:0")
        self.wait_until_dead(victims)
        self.stop_coordinator()
        {"older": self.bring_copy_back, "removed": self.remove_store, "emptied": self.empty_store}[how]()
        self.up_again()
        moved.kill()
        moved.communicate()
        if how != "older":
            self.wait_for_event("job-taken-in", len(RUN))
            self.wait_for_event("cluster-recognised")
        self.wait_until_nothing_is_open()
        self.wait_for_one_instance_each(len(RUN))
        self.check_new_job()
        for name in REST:
            cluster.call("resume", name)
        for name in {**RUN, **REST}:
            self.check_moves(name)
        self.wait_for_one_instance_each(len(RUN) + len(REST))
        for name in {**RUN, **REST}:
            self.check_steps(name)

    def wait_for_one_instance_each(self, count):
        """Waits: processes that a finished move leaves behind end a moment after it."""
        eventually_equal(lambda: len(self.cluster.pids("examples/charlm")), count,
                         "one instance for each job")
        running = {job["name"] for job in self.cluster.json("jobs") if job["state"] == "running"}
        self.assertEqual(len(running), count, running)

    def check_new_job(self):
        before = {job["id"] for job in self.cluster.json("jobs")}
        self.cluster.call("run", "--cooperative", "--detach", "--name", "new", "--", "/bin/echo", "I am new")
        self.cluster.call("wait", "new")
        self.assertNotIn(self.cluster.job("new")["id"], before)
        self.assertEqual(self.cluster.log("new").strip(), "I am new")

    def check_moves(self, name):
        node = self.cluster.job(name)["node"]
        there = {"node-a": "node-b", "node-b": "node-c", "node-c": "node-a"}[node]
        self.assertEqual(self.cluster.migrate(name, there)["result"], "done", name)

    def check_steps(self, name):
        """Each step once, in order, and as an unmoved one prints it; what rested repeats none either."""
        log = self.cluster.log(name)
        self.assert_steps_in_order(log)
        steps = self.steps_in(log)
        first = int(steps[0][0])
        self.assertEqual(steps, [step for step in self.unmoved if int(step[0]) >= first][:len(steps)], name)


def run_unmoved_log():
    return run_unmoved("charlm", *[word if word != "20" else "0" for word in TRAINING], whole=True)


lose_at_each_point(StoreOfAFleetLost, ("removed", "emptied", "older"))
