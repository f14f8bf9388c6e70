# SPDX-License-Identifier: Apache-2.0
"""A dump that does not end. `stop` ends its job all the same, and an agent that is started again meanwhile
does not wait for it before it serves. Needs root and CRIU."""
import os

from crashing_processes import CrashesWithCriu
from waiting import eventually

STEPS = 1000000  # more steps than the job will do


class DumpThatStays(CrashesWithCriu):
    surroundings = {"GPUMIGRATE_CRIU_TIMEOUT": "3600"}

    def begin_dump(self):
        self.start_training(STEPS)
        moved = self.move_with("dump", "stay")
        self.wait_until_reached()
        return moved

    def check_stopped(self):
        self.cluster.call("stop", "job", "--grace", "0s")
        eventually(lambda: not self.cluster.pids("charlm-plain"), "no process of the job is left")

    def test_job_is_stopped_while_it_is_dumped(self):
        moved = self.begin_dump()
        self.check_stopped()
        moved.wait(120)

    def test_agent_that_is_started_again_serves_while_a_job_is_dumped(self):
        moved = self.begin_dump()
        # The source decides to continue, and waits for the dump.
        aborted = self.cluster.popen("abort", self.cluster.json("migrations")[0]["id"])
        log = self.cluster.home / "nodes/node-a/agent.log"
        eventually(lambda: "runs-at-source" in log.read_text(), "the source has given the move up")
        self.kill_agent("node-a")
        self.cluster.up()
        os.write(self.ends["go"], b"\n")
        moved.wait(120)
        aborted.wait(120)
        self.assertEqual(self.running_place(), "node-a")
        self.check_stopped()

    def test_job_can_be_stopped_while_its_dump_outlives_its_agent(self):
        moved = self.begin_dump()
        self.kill_agent("node-a")
        self.cluster.up()
        self.check_stopped()
        moved.wait(120)
