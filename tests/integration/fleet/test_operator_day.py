# SPDX-License-Identifier: Apache-2.0
"""Three nodes and an operator's day: drains, Xids, dead nodes, restarts, images and limits. After each act every exit
code, dry run, table, metric and alert is compared with what is so."""
import datetime
import os
import pathlib
import re
import shutil
import socket
import sys
import tempfile
import unittest

from cluster import COMMAND_LIMIT_S, run_unmoved
from crashing_processes import hanging_criu
from fault_points import Point
from operator_acts import STOPPED, OperatorActs
from operator_day import table
from waiting import eventually, eventually_equal

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "tests" / "integration" / "programs" / "python_job.py"
PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
STEPS = "12000"  # half of the steps take a tenth of a second until the evening
COOPERATIVE = ("hotset", "--bytes", "16MiB", "--hot", "4%", "--seed", "7", "--print-every", "1", "--steps", STEPS)
TRANSPARENT = ("charlm-plain", "--params", "20000", "--seed", "5", "--print-every", "1", "--steps", STEPS)
TIED = (PYTHON, str(PROGRAM), "outside", STEPS)
STEP_MS = ("--step-ms", "2")  # the pace changes no digest
WARNS, WEARS_OUT, FATAL = 13, 63, 79
IMAGE_AGE = "gpumigrate_oldest_image_timestamp_seconds"
RESTORED = re.compile(r"^\[gpumigrate: restored from .*\n", re.M)


class OperatorDay(OperatorActs):
    def setUp(self):
        self.hang_restores()
        super().setUp()
        self.vault = self.cluster.home / "vault"
        self.peer = socket.create_server(("127.0.0.1", 0))  # a server outside of every job
        self.addCleanup(self.peer.close)

    def hang_restores(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="gm-criu-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        criu, self.hangs = hanging_criu(folder)
        self.agent_settings = f'health_window_ms = 20\ncriu = "{criu}"\n'

    @unittest.skipUnless(os.geteuid() == 0, "a process moves as root only")
    def test_reports_to_the_operator_match_the_facts(self):
        for part in (self.morning, self.drains, self.findings, self.fatal_fault, self.silent_node, self.lost_node,
                     self.restarts, self.images, self.evening):
            print(f"{datetime.datetime.now():%H:%M:%S} {part.__name__}", flush=True)
            part()

    def morning(self):
        self.see("nothing runs")
        self.start("coop", "node-a:0", *COOPERATIVE, *STEP_MS, way=("--cooperative",))
        self.start("plain", "node-a:1", *TRANSPARENT, *STEP_MS)
        self.start("tied", "node-b:0", *TIED, env=(f"GPUMIGRATE_TEST_PEER=127.0.0.1:{self.peer.getsockname()[1]}",))
        self.start("extra", None, *COOPERATIVE, *STEP_MS, way=("--cooperative",))
        self.stop("extra")
        eventually(lambda: self.cluster.job("tied")["obstacles"], "the connection is found")
        self.refuse("open TCP connection", "migrate", "tied", "--to", "node-c")
        self.move("coop")
        self.limits()

    def limits(self):
        limit = ("migrate", "plain", "--to", "node-b:1", "--max-downtime")
        before = self.cluster.job("plain")
        self.assertIn("the move is refused unless", self.cluster.call(*limit, "1ms", "--dry-run").stdout)
        self.cluster.call(*limit, "1ms", exits=(5,))
        self.see("a limit is not kept")
        self.hangs.touch()
        report = self.cluster.json(*limit, "4s", exits=(1,))
        self.assertEqual(report["result"], "failed", report)
        self.hangs.unlink()
        after = self.cluster.job("plain")
        self.assertEqual([before[field] for field in ("incarnation", "ranks", "state")],
                         [after[field] for field in ("incarnation", "ranks", "state")])
        self.see("a limit has ended a pause")
        self.move("plain", "--to", "node-b:1", "--max-downtime", "1m")

    def drains(self):
        jobs = self.drain("node-b", 1)
        self.assertEqual((jobs["tied"]["state"], jobs["tied"]["attempts"], jobs["plain"]["state"]), ("blocked", 0, "moved"))
        self.assertIn("open TCP connection", jobs["tied"]["reason"])
        self.assertIn("removed", self.uncordon("node-b"))
        self.see("the drain is undone")
        node = self.so.places["coop"].partition(":")[0]
        self.drain(node, 0)
        self.assertIn("it had no jobs", self.cluster.call("drain", node).stdout)
        self.refuse("cordoned by operator: new driver", "migrate", "coop", "--to", node)
        self.refuse("cordoned by operator: new driver", "run", "--node", node, "--detach", "--", "/bin/true")
        self.uncordon(node)
        self.see("the drain is undone")

    def findings(self):
        self.fault(self.so.places["plain"], WARNS)
        self.see("a finding warns")
        place = self.evacuate("plain", WEARS_OUT, "moved")
        order = ("run", "--node", place, "--detach", "--", "/bin/true")
        self.refuse("cordoned by health: Xid 63", *order)
        self.assertIn(f"{place} is suspect until", self.uncordon(place))
        self.so.closed[place] = r"suspect until .*Xid 63 .*"
        self.see("the cordon is removed")
        self.refuse("suspect until", *order)
        self.forgive(place)
        self.start("guest", place, *TRANSPARENT, *STEP_MS)
        self.stop("guest")

    def fatal_fault(self):
        self.cluster.call("protect", "coop", "--every", "10s", "--to", self.vault, "--dry-run")
        self.cluster.call("protect", "coop", "--every", "10s", "--to", self.vault)
        eventually(lambda: len(self.cluster.json("images")) == 2, "two images are kept")
        node = self.so.places["coop"].partition(":")[0]
        self.cluster.call("policy", "pause", node)
        self.fault(self.so.places["coop"], FATAL)
        doubted = self.cluster.json("snapshot", "coop", "--to", self.vault)["image"]
        self.assertIn(doubted, [image["id"] for image in self.cluster.json("images") if image["suspect"]])
        self.see("an image is taken after a fault")
        self.refuse("--accept-loss", "restore", "coop")
        self.cluster.call("policy", "resume", node)
        self.assertNotEqual(self.restore("coop", 3, "--accept-loss"), doubted)
        self.forgive(self.evacuate("coop", FATAL, "restored"))

    def silent_node(self):
        self.put("coop", "node-c:0")
        self.put("plain", "node-a:1")
        self.cluster.kill("gpumigrate-agent --config " + str(self.cluster.home / "nodes/node-a/agent.toml"))
        self.so.dead.add("node-a")
        self.so.silent["plain"] = "unreachable"
        self.see("an agent is killed")
        self.refuse("unreachable|silent|not connected", "migrate", "plain")
        self.assertIn("may still run there", self.cluster.call("stop", "plain", exits=(6,)).stderr)
        self.so.silent["plain"] = "stopping (node silent)"
        self.see("a job is stopped on a silent node")
        self.cluster.up()
        self.cluster.call("wait", "plain", exits=STOPPED)
        self.so.dead.clear()
        self.so.silent.clear()
        del self.so.places["plain"]
        self.see("the node is back")
        self.assert_steps_in_order(self.cluster.log("plain"))

    def lost_node(self):
        before = self.cluster.log("coop")
        self.cluster.call("unprotect", "coop")  # no image is being taken when the node is killed
        self.cluster.json("snapshot", "coop", "--to", self.vault)
        self.cluster.kill("nodes/node-c/")  # kills agent, mover and keeper; the rank exits with its keeper
        self.so.dead.add("node-c")
        self.so.killed.add("coop")
        self.so.silent["coop"] = "unreachable"
        self.see("a node dies")
        self.refuse("not connected", "restore", "coop", "--accept-loss")
        copied = self.cluster.call("logs", "coop", exits=(5,))
        self.assertIn("node-c is not connected", copied.stderr)
        self.assertTrue(copied.stdout.startswith(before.split("\n")[0]), copied.stdout[:200])
        self.cluster.call("node", "rm", "node-c", exits=(5,))
        self.see("a node with a job is not removed")
        self.cluster.call("node", "rm", "node-c", "--force", "--fenced")
        self.so.nodes.remove("node-c")
        self.so.silent.clear()
        self.so.killed.clear()
        del self.so.places["coop"]
        self.see("the node is removed")
        self.prometheus.wait_for_alert("GpumigrateJobLost")
        self.restore("coop", 3, "--accept-loss")
        shown = self.cluster.call("logs", "coop")
        self.assertEqual((shown.stderr, shown.stdout[:len(copied.stdout)]), ("", copied.stdout))
        self.cluster.call("node", "add", "node-c")
        self.cluster.up()
        self.so.nodes.append("node-c")
        self.so.dead.clear()
        self.see("the node is back")

    def restarts(self):
        self.start("late", "node-a:1", *TRANSPARENT, *STEP_MS)
        self.put("coop", "node-b:1")
        self.cluster.arm("coordinator", Point.COORDINATOR_GRANTED_DURABLE)
        with self.cluster.popen("migrate", "coop", "--to", "node-c:1", "-o", "json") as moving:
            eventually(lambda: self.cluster.pids("gpumigrate-coordinator") == [], "the coordinator has died in a move")
            self.prometheus.wait_for_alert("GpumigrateCoordinatorDown")
            self.cluster.call("jobs", exits=(5,))
            self.cluster.up()
            output, errors = moving.communicate(timeout=COMMAND_LIMIT_S)
        self.assertEqual(moving.returncode, 0, output + errors)
        self.so.places["coop"] = "node-c:1"
        self.see("the coordinator is back")
        for node in ("node-a", "node-c"):
            self.cluster.kill(f"gpumigrate-agent --config {self.cluster.home}/nodes/{node}/agent.toml")
        self.cluster.up()
        self.see("agents are back")

    def images(self):
        self.cluster.call("protect", "coop", "--every", "2s", "--to", self.vault)
        self.see_the_images_age()
        aside = self.cluster.home / "aside"
        self.vault.rename(aside)
        self.vault.touch()  # a file instead of a folder
        eventually(lambda: self.cluster.job("coop")["protection"]["last_error"], "the image's failure is shown")
        self.assertRegex(self.cluster.call("jobs").stdout, r"(?m)^coop .* FAILS \(describe\)$")
        self.prometheus.wait_for_alert("GpumigrateSnapshotsFail")
        self.so.overdue = 1
        self.see("images are old")
        self.vault.unlink()
        aside.rename(self.vault)
        self.so.overdue = 0
        self.see("images are made again")
        self.cluster.call("unprotect", "coop")
        eventually_equal(lambda: self.prometheus.query(IMAGE_AGE), [], "no image's age is shown")
        self.rest()

    def see_the_images_age(self):
        def read():
            protection = self.cluster.job("coop")["protection"]
            image = next((image for image in self.cluster.json("images") if image["id"] == protection["last_image"]), None)
            created = image and datetime.datetime.fromisoformat(image["created"].replace("Z", "+00:00")).timestamp()
            return [value for _, value in self.prometheus.query(IMAGE_AGE)] == [created]
        eventually(read, "the age of the newest image is that of its metric")

    def rest(self):
        parked = self.cluster.json("suspend", "coop", "--to", self.vault)
        del self.so.places["coop"]
        self.so.parked.add("coop")
        self.see("a job is suspended")
        self.refuse("parked|not run", "migrate", "coop")
        self.assertEqual(self.restore("coop", 0), parked["image"])
        self.cluster.json("suspend", "coop", "--to", self.vault)
        resumed = self.cluster.json("resume", "coop", "--to", "node-a:0")
        self.so.places["coop"] = resumed["restored"]["at"]
        self.assertEqual(resumed["restored"]["lost_ms"], 0)
        self.see("a job is resumed")

    def assert_log_is_whole(self, name):
        for life in RESTORED.split(self.cluster.log(name)):
            self.assert_steps_in_order(life)
            steps = [int(step) for step in re.findall(r"^step (\d+)\b", life, re.M)]
            self.assertEqual(steps, sorted(set(steps)), "steps repeated")

    def evening(self):
        for name, unmoved in (("coop", (*COOPERATIVE, "--step-ms", "0")), ("late", (*TRANSPARENT, "--step-ms", "0")),
                              ("tied", (*TIED[:2], "plain", STEPS))):
            ended = self.cluster.finish(name)
            self.assertEqual(ended["digest"], run_unmoved(*unmoved, limit=600)["digest"])
            self.assert_log_is_whole(name)
            del self.so.places[name]
            self.see(f"{name} has ended")
        self.assertEqual(table(self.cluster.call("jobs").stdout, "NAME"), {})
        eventually_equal(lambda: self.cluster.pids("gpumigrate-keeper"), [], "no keeper is left")


if __name__ == "__main__":
    unittest.main()
