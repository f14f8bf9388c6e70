# SPDX-License-Identifier: Apache-2.0
"""A move of a whole process between two nodes in which something dies or fails. Needs root and CRIU."""
import json
import os
import pathlib
import select
import shutil
import signal
import stat
import subprocess
import tempfile
import unittest
import unittest.mock

from crashing import SOURCE, TransparentCrashes

CRIU = pathlib.Path(__file__).resolve().parents[3] / "tools" / "criu"


def hanging_criu(folder):
    """A program for the setting `criu` whose restores wait for ever while the second path exists."""
    real = subprocess.run([CRIU, "find"], capture_output=True, text=True, check=True).stdout.split()[0]
    hangs, criu = folder / "hangs", folder / "criu"
    criu.write_text(f'#!/bin/sh\n[ "$1" = restore ] && [ -e {hangs} ] && exec sleep 100000\nexec {real} "$@"\n')
    criu.chmod(stat.S_IRWXU)
    return criu, hangs


# $1 is CRIU's order. A file `fail-ORDER` determines the result of the next such order. The order fails before
# CRIU is run ("early") or after CRIU has run ("late"). CRIU waits for the test's command ("hold"), or the
# test is notified when CRIU has ended ("tell"). CRIU kills itself at one of its own fault points ("fault N").
# A dump reports that it is complete and remains, with all processes traced ("stay").
WRAPPER = """#!/bin/sh
if [ -e "{tools}/fail-$1" ]; then
  how=$(cat "{tools}/fail-$1")
  rm "{tools}/fail-$1"
  case "$how" in
    hold) echo >"{tools}/reached"; read line <"{tools}/go" ;;
    tell) "{criu}" "$@"; status=$?; echo >"{tools}/reached"; exit "$status" ;;
    fault*) export CRIU_FAULT="${{how#fault }}" ;;
    late) "{criu}" "$@"; exit 1 ;;
    stay) exec "{criu}" "$@" --action-script "{tools}/stay" ;;
    *) exit 1 ;;
  esac
fi
exec "{criu}" "$@"
"""

STAY = """#!/bin/sh
[ "$CRTOOLS_SCRIPT_ACTION" = post-dump ] || exit 0
echo >"{tools}/reached"
read line <"{tools}/go"
"""


def find_criu():
    for place in (os.environ.get("GPUMIGRATE_CRIU"), shutil.which("criu"),
                  pathlib.Path.home() / ".cache/gpumigrate/criu/bin/criu",
                  "/usr/local/lib/gpumigrate/criu/bin/criu"):
        if place and os.access(place, os.X_OK):
            return place
    return None


class CrashesWithCriu(TransparentCrashes):
    """CRIU runs behind a script that fails by order."""
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
            # The pipe is closed at the end, which ends the wait of a held CRIU.
            self.ends[name] = os.open(self.tools / name, os.O_RDWR)
            self.addCleanup(os.close, self.ends[name])
        for name, text in (("criu", WRAPPER), ("stay", STAY)):
            (self.tools / name).write_text(text.format(tools=self.tools, criu=self.criu))
            (self.tools / name).chmod(0o755)
        wrapper = self.tools / "criu"
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

    def move_fails(self, order, how, contains):
        """... and the job goes on at the source."""
        print(f"  criu {order} {how}:", end="", flush=True)
        moved = self.move_with(order, how)
        moved.wait(120)
        self.assertFalse((self.tools / f"fail-{order}").exists(), "CRIU was not called")
        migration = self.check_outcome(moved, "node-a", "node-b", SOURCE)
        self.assertEqual(migration["result"], "failed")
        self.assertIn(contains, json.dumps(migration["error"]))
        return migration

    def move_and_finish(self):
        self.assertEqual(self.cluster.migrate("job", "node-b")["result"], "done")
        self.finish_training()

    def kill_agent(self, node):
        agent = self.daemons_of(f"agent.{node}")
        signal.pidfd_send_signal(agent[0], signal.SIGKILL)
        self.wait_until_dead(agent)
