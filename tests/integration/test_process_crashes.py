# SPDX-License-Identifier: Apache-2.0
"""kill -9 at the crash points of a move of a whole process between two nodes, and CRIU that fails on either side. Before COMMITTED,
and whenever the target cannot restore, the job goes on at the source from the very step it stopped at. Needs root and CRIU."""
import json
import os
import pathlib
import select
import shutil
import signal
import tempfile
import unittest
import unittest.mock

from crashing import EITHER, SOURCE, TARGET, TransparentCrashes

AGENT_BEFORE = [("agent.source", number, ends_on) for number, ends_on in [
    (101, EITHER), (102, EITHER), (103, SOURCE), (108, SOURCE), (109, SOURCE), (110, SOURCE), (104, EITHER), (105, EITHER)]]
AGENT_AFTER = [("agent.source", 106, TARGET), ("agent.source", 107, TARGET)]
# The image is the target agent's until the restored process has a keeper: 204 ends on the source.
TARGET_BEFORE = [("agent.target", 201, EITHER), ("agent.target", 202, SOURCE), ("agent.target", 203, SOURCE),
                 ("agent.target", 204, SOURCE)]
TARGET_AFTER = [("agent.target", number, TARGET) for number in (207, 208, 209, 205, 206)]
MOVERS = [("mover.source", 301, SOURCE), ("mover.source", 302, SOURCE), ("mover.source", 303, SOURCE),
          ("mover.source", 304, EITHER), ("mover.target", 401, SOURCE), ("mover.target", 402, SOURCE),
          ("mover.target", 403, SOURCE), ("mover.target", 404, SOURCE)]
COORDINATOR = [("coordinator", number, ends_on) for number, ends_on in [
    (601, EITHER), (602, EITHER), (603, EITHER), (604, EITHER), (605, TARGET), (606, TARGET), (607, TARGET)]]
HELPER = [(f"context.{order}", number, SOURCE) for order in ("lock", "checkpoint", "restore", "unlock")
          for number in (701, 702)]
KEEPER = [("keeper.j1.standby", 505, SOURCE)]
POINTS = AGENT_BEFORE + AGENT_AFTER + TARGET_BEFORE + TARGET_AFTER + MOVERS + COORDINATOR + HELPER + KEEPER


# $1 is CRIU's order. A file `fail-ORDER` says what becomes of the next such order: it fails before CRIU is run ("early") or after
# it ("late"), or CRIU is run once the test says so ("hold").
WRAPPER = """#!/bin/sh
if [ -e "{tools}/fail-$1" ]; then
  how=$(cat "{tools}/fail-$1")
  rm "{tools}/fail-$1"
  if [ "$how" = hold ]; then
    echo >"{tools}/reached"
    read line <"{tools}/go"
  else
    [ "$how" = late ] && "{criu}" "$@"
    exit 1
  fi
fi
exec "{criu}" "$@"
"""


def find_criu():
    for place in (os.environ.get("GPUMIGRATE_CRIU"), shutil.which("criu"), pathlib.Path.home() / ".cache/gpumigrate/criu/bin/criu",
                  "/usr/local/lib/gpumigrate/criu/bin/criu"):
        if place and os.access(place, os.X_OK):
            return place
    return None


class ProcessCrashes(TransparentCrashes):
    places = ("node-a", "node-b")

    @classmethod
    def setUpClass(cls):
        cls.criu = find_criu()
        if os.geteuid() != 0:
            raise unittest.SkipTest("moving a process needs root")
        if not cls.criu:
            raise unittest.SkipTest("there is no CRIU: tools/criu install")

    def setUp(self):
        self.tools = pathlib.Path(tempfile.mkdtemp(prefix="gm-criu-"))
        self.addCleanup(shutil.rmtree, self.tools)
        self.ends = {}
        for name in ("reached", "go"):
            os.mkfifo(self.tools / name)
            self.ends[name] = os.open(self.tools / name, os.O_RDWR)  # closed at the end, which ends a held CRIU's waiting
            self.addCleanup(os.close, self.ends[name])
        wrapper = self.tools / "criu"
        wrapper.write_text(WRAPPER.format(tools=self.tools, criu=self.criu))
        wrapper.chmod(0o755)
        with unittest.mock.patch.dict(os.environ, GPUMIGRATE_CRIU=str(wrapper)):
            super().setUp()

    def start_training(self, steps):
        super().start_training(steps)
        plan = self.cluster.run("migrate", "job", "--to", "node-b", "--dry-run")
        if plan.returncode != 0 and "host processes" in plan.stdout + plan.stderr:
            self.skipTest((plan.stdout + plan.stderr).strip())

    def finish_training(self):
        super().finish_training()
        for node in self.places:
            facts = (self.cluster.home / "nodes" / node).stat()
            left = [*pathlib.Path("/dev/shm").glob(f"gpumigrate-{facts.st_dev}.{facts.st_ino}-*")]
            self.assertEqual(left, [], "an image is left in memory")

    def test_source_agent_before_committed(self):
        self.crash(AGENT_BEFORE, 4000)

    def test_source_agent_after_committed(self):
        self.crash(AGENT_AFTER, 2000)

    def test_target_agent_before_the_process_is_there(self):
        self.crash(TARGET_BEFORE, 2000)

    def test_target_agent_when_the_process_is_there(self):
        self.crash(TARGET_AFTER, 4000)

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

    def test_criu_that_fails(self):
        self.start_training(2500)
        for order, when in (("dump", "early"), ("dump", "late"), ("restore", "early"), ("restore", "late")):
            with self.subTest(order=order, when=when):
                print(f"  criu {order} {when}:", end="", flush=True)
                order_file = self.tools / f"fail-{order}"
                order_file.write_text(when)
                moved = self.cluster.popen("migrate", "job", "--to", "node-b", "-o", "json", "--timeout", "60s")
                moved.wait(120)
                self.assertFalse(order_file.exists(), "CRIU was not called")
                migration = self.check_outcome(moved, "node-a", "node-b", SOURCE)
                self.assertEqual(migration["result"], "failed")
                self.assertIn("restored" if order == "restore" else "CRIU", json.dumps(migration["error"]))
        self.assertEqual(self.cluster.migrate("job", "node-b")["result"], "done")
        self.finish_training()

    def test_agent_while_criu_works(self):
        """CRIU goes on without its agent, whose successor must not let the process go on before CRIU has stopped it, nor run it
        twice."""
        self.start_training(2000)
        for order, node in (("dump", "node-a"), ("restore", "node-b")):
            with self.subTest(order=order):
                print(f"  agent at {node}, CRIU's {order}:", end="", flush=True)
                (self.tools / f"fail-{order}").write_text("hold")
                moved = self.cluster.popen("migrate", "job", "--to", "node-b", "-o", "json", "--timeout", "60s")
                ready, _, _ = select.select([self.ends["reached"]], [], [], 60)
                self.assertTrue(ready, "CRIU was not called")
                os.read(self.ends["reached"], 1)
                agent = self.daemons_of(f"agent.{node}")
                signal.pidfd_send_signal(agent[0], signal.SIGKILL)
                self.wait_until_dead(agent)
                self.cluster.up()
                os.write(self.ends["go"], b"\n")
                self.check_outcome(moved, "node-a", "node-b", SOURCE)
        self.assertEqual(self.cluster.migrate("job", "node-b")["result"], "done")
        self.finish_training()


if __name__ == "__main__":
    unittest.main(verbosity=2)
