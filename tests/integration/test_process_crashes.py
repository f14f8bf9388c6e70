# SPDX-License-Identifier: Apache-2.0
"""kill -9 at the crash points of a move of a whole process between two nodes, and CRIU that fails on either side. Before COMMITTED,
and whenever the target cannot restore, the job goes on at the source from the very step it stopped at. Needs root and CRIU."""
import errno
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import unittest
import unittest.mock

from cluster import BIN, Cluster, CommandError
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
# it ("late"), CRIU is run once the test says so ("hold"), the test is told when CRIU has ended ("tell"), or CRIU kills itself at one of its
# own fault points ("fault N").
WRAPPER = """#!/bin/sh
if [ -e "{tools}/fail-$1" ]; then
  how=$(cat "{tools}/fail-$1")
  rm "{tools}/fail-$1"
  case "$how" in
    hold) echo >"{tools}/reached"; read line <"{tools}/go" ;;
    tell) "{criu}" "$@"; status=$?; echo >"{tools}/reached"; exit "$status" ;;
    fault*) export CRIU_FAULT="${{how#fault }}" ;;
    late) "{criu}" "$@"; exit 1 ;;
    *) exit 1 ;;
  esac
fi
exec "{criu}" "$@"
"""
# criu/include/fault-injection.h: with the first process infected; with the first process restored.
KILLED_IN_A_DUMP, KILLED_IN_A_RESTORE = 1, 2


def find_criu():
    for place in (os.environ.get("GPUMIGRATE_CRIU"), shutil.which("criu"), pathlib.Path.home() / ".cache/gpumigrate/criu/bin/criu",
                  "/usr/local/lib/gpumigrate/criu/bin/criu"):
        if place and os.access(place, os.X_OK):
            return place
    return None


class CrashesWithCriu(TransparentCrashes):
    """CRIU runs behind a script that can be told to fail."""
    places = ("node-a", "node-b")
    surroundings = {}

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
        with unittest.mock.patch.dict(os.environ, GPUMIGRATE_CRIU=str(wrapper), **self.surroundings):
            super().setUp()

    def start_training(self, steps):
        super().start_training(steps)
        plan = self.cluster.run("migrate", "job", "--to", "node-b", "--dry-run")
        if plan.returncode != 0 and "host processes" in plan.stdout + plan.stderr:
            self.skipTest((plan.stdout + plan.stderr).strip())

    def image_folders(self, node):
        facts = (self.cluster.home / "nodes" / node).stat()
        return f"gpumigrate-{facts.st_dev}.{facts.st_ino}-"

    def finish_training(self):
        super().finish_training()
        for node in self.places:
            left = [*pathlib.Path("/dev/shm").glob(self.image_folders(node) + "*")]
            self.assertEqual(left, [], "an image is left in memory")

    def wait_until_reached(self):
        ready, _, _ = select.select([self.ends["reached"]], [], [], 60)
        self.assertTrue(ready, "CRIU was not called")
        os.read(self.ends["reached"], 1)

    def move_with(self, order, how):
        """Begins a move in which CRIU does so."""
        (self.tools / f"fail-{order}").write_text(how)
        return self.cluster.popen("migrate", "job", "--to", "node-b", "-o", "json", "--timeout", "60s")

    def move_fails(self, order, how, says):
        """... and the job goes on at the source."""
        print(f"  criu {order} {how}:", end="", flush=True)
        moved = self.move_with(order, how)
        moved.wait(120)
        self.assertFalse((self.tools / f"fail-{order}").exists(), "CRIU was not called")
        migration = self.check_outcome(moved, "node-a", "node-b", SOURCE)
        self.assertEqual(migration["result"], "failed")
        self.assertIn(says, json.dumps(migration["error"]))

    def move_and_finish(self):
        self.assertEqual(self.cluster.migrate("job", "node-b")["result"], "done")
        self.finish_training()


class ProcessCrashes(CrashesWithCriu):

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
                self.move_fails(order, when, "restored" if order == "restore" else "CRIU")
        self.move_and_finish()

    def test_criu_that_is_killed(self):
        self.start_training(2500)
        for order, point in (("dump", KILLED_IN_A_DUMP), ("restore", KILLED_IN_A_RESTORE)):
            with self.subTest(order=order):
                self.move_fails(order, f"fault {point}", "restored" if order == "restore" else "CRIU")
        self.move_and_finish()

    def test_agent_while_criu_works(self):
        """CRIU goes on without its agent, whose successor must not let the process go on before CRIU has stopped it, nor run it
        twice."""
        self.start_training(2000)
        for order, node in (("dump", "node-a"), ("restore", "node-b")):
            with self.subTest(order=order):
                print(f"  agent at {node}, CRIU's {order}:", end="", flush=True)
                moved = self.move_with(order, "hold")
                self.wait_until_reached()
                self.kill_agent(node)
                self.cluster.up()
                os.write(self.ends["go"], b"\n")
                self.check_outcome(moved, "node-a", "node-b", SOURCE)
        self.move_and_finish()

    def kill_agent(self, node):
        agent = self.daemons_of(f"agent.{node}")
        signal.pidfd_send_signal(agent[0], signal.SIGKILL)
        self.wait_until_dead(agent)

    def test_agent_dies_again_while_it_goes_back(self):
        self.start_training(2500)
        for first, second in ((110, 208), (109, 208), (110, 209)):
            with self.subTest(first=first, second=second):
                print(f"  agent.source {first}, then {second}:", end="", flush=True)
                for number in (first, second):
                    self.cluster.arm("agent.node-a", number)
                victims = self.daemons_of("agent.node-a")
                moved = self.cluster.popen("migrate", "job", "--to", "node-b", "-o", "json", "--timeout", "60s")
                self.wait_until_fired("agent.node-a", first, moved)
                self.wait_until_dead(victims)
                started = self.cluster.run("local", "up", *self.cluster.up_arguments)
                if not self.cluster.fired("agent.node-a", second):
                    self.assertEqual(started.returncode, 0, started)
                    self.wait_until_fired("agent.node-a", second)
                self.wait_until_dead(self.daemons_of("agent.node-a"))
                self.cluster.up()
                self.check_outcome(moved, "node-a", "node-b", SOURCE)
        self.move_and_finish()

    def test_an_agent_removes_what_its_predecessor_left(self):
        self.start_training(1000)
        left = pathlib.Path("/dev/shm") / (self.image_folders("node-b") + "j9.m9-target")
        left.mkdir(mode=0o700)
        self.addCleanup(shutil.rmtree, left, ignore_errors=True)
        (left / "pages-1.img").write_bytes(b"x" * 4096)
        self.kill_agent("node-b")
        self.cluster.up()
        self.move_and_finish()

    def test_dumps_that_meet_in_a_working_folder(self):
        """For a moment CRIU makes a folder in the working folder of the job, which is this cluster's home."""
        self.start_training(2500)
        other = self.cluster.home / "proc.crtools"
        other.mkdir()
        self.move_fails("dump", "tell", "proc.crtools")
        os.read(self.ends["reached"], 1)
        moved = self.move_with("dump", "tell")
        self.wait_until_reached()
        other.rmdir()
        self.check_outcome(moved, "node-a", "node-b", TARGET)
        self.finish_training()


class HangingCriu(CrashesWithCriu):
    surroundings = {"GPUMIGRATE_CRIU_TIMEOUT": "5"}

    def test_criu_that_hangs(self):
        self.start_training(4000)
        for order in ("dump", "restore"):
            with self.subTest(order=order):
                self.move_fails(order, "hold", "killed")
                os.read(self.ends["reached"], 1)
        self.move_and_finish()

    def test_criu_that_hangs_while_its_agent_dies(self):
        self.start_training(4000)
        print("  agent at node-a, CRIU hangs:", end="", flush=True)
        moved = self.move_with("dump", "hold")
        self.wait_until_reached()
        agent = self.daemons_of("agent.node-a")
        signal.pidfd_send_signal(agent[0], signal.SIGKILL)
        self.wait_until_dead(agent)
        self.cluster.up()
        self.check_outcome(moved, "node-a", "node-b", SOURCE)
        self.move_and_finish()


class SmallCluster(Cluster):
    """Its daemons have a /dev/shm of their own that holds little."""

    def up(self):
        small = "mount -t tmpfs -o size=2m,mode=1777 gpumigrate-test /dev/shm && exec \"$@\""
        command = ["unshare", "--mount", "sh", "-c", small, "sh", BIN / "gpumigrate", "local", "up", *self.up_arguments]
        result = subprocess.run(command, env=self.environment, capture_output=True, text=True, cwd=self.home)
        if result.returncode != 0:
            raise CommandError(result)


class FullMemoryFolder(CrashesWithCriu):
    def setUp(self):
        with unittest.mock.patch("cluster.Cluster", SmallCluster):
            super().setUp()

    def fill_memory_folder(self, node):
        """Returns what must be removed for it to have room again."""
        agent = self.cluster.pids(f"nodes/{node}/agent.toml")[0]
        filler = pathlib.Path(f"/proc/{agent}/root/dev/shm/filler")
        with filler.open("wb", buffering=0) as file:
            try:
                while file.write(b"x" * 4096):
                    pass
            except OSError as error:
                self.assertEqual(error.errno, errno.ENOSPC)
        return filler

    def test_at_the_source(self):
        self.start_training(2500)
        filler = self.fill_memory_folder("node-a")
        print("  full at the source:", end="", flush=True)
        moved = self.cluster.popen("migrate", "job", "--to", "node-b", "-o", "json", "--timeout", "60s")
        migration = self.check_outcome(moved, "node-a", "node-b", SOURCE)
        self.assertIn("/dev/shm", json.dumps(migration["error"]))
        filler.unlink()
        self.move_and_finish()

    def test_at_the_target(self):
        self.start_training(2500)
        print("  full at the target:", end="", flush=True)
        self.cluster.arm("agent.node-b", 204, "stop")
        held = self.daemons_of("agent.node-b")
        moved = self.cluster.popen("migrate", "job", "--to", "node-b", "-o", "json", "--timeout", "60s")
        self.wait_until_fired("agent.node-b", 204, moved)
        filler = self.fill_memory_folder("node-b")
        signal.pidfd_send_signal(held[0], signal.SIGCONT)
        os.close(held[0])
        migration = self.check_outcome(moved, "node-a", "node-b", SOURCE)
        self.assertIn("No space left", json.dumps(migration["error"]))
        filler.unlink()
        self.move_and_finish()


if __name__ == "__main__":
    unittest.main(verbosity=2)
