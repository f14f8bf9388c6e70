# SPDX-License-Identifier: Apache-2.0
"""GPUs in trouble, as far as reports go: the software NVML and a file in the kernel log's place report
everything that the tables know, and the coordinator's events must show the decisions. Nothing is moved here
(policy pause)."""
import csv
import json
import pathlib
import re
import subprocess
import threading
import unittest

import cluster
from unix_http import ask
from waiting import eventually

TABLES = pathlib.Path(__file__).resolve().parents[3] / "libckpt" / "health" / "data"
CONTROL = cluster.BIN / "cudasim-ctl"
BUS = "0000:10:00"
HOTSET = ["--bytes", "16MiB", "--hot", "2%", "--step-ms", "5", "--seed", "7", "--print-every", "1"]
FOLLOWS_ANOTHER = {"154"}  # judged by the numbers in the Xid, not by a row of the table


def rows(table):
    with open(TABLES / table, newline="") as file:
        return list(csv.DictReader(file))


class Gpu:
    """The GPU of node-a from outside: its software NVML and its kernel log."""

    def __init__(self, the_cluster):
        self.folder = the_cluster.home / "nodes" / "node-a"
        self.sequence = 0

    def control(self, *words):
        subprocess.run([CONTROL, "--dir", self.folder / "gpu", *map(str, words)], check=True,
                       capture_output=True)

    def log(self, *texts, facility=0):
        lines = ""
        for text in texts:
            self.sequence += 1
            lines += f"{3 + 8 * facility},{self.sequence},{1000 * self.sequence},-;{text}\n"
        with open(self.folder / "gpu" / "kernel.log", "a") as file:
            file.write(lines)

    def xid(self, xid, pid=None, detail="something"):
        who = f"pid={pid}, name=job, " if pid else "pid='<unknown>', name=<unknown>, "
        return f"NVRM: Xid (PCI:{BUS}): {xid}, {who}{detail}"


class Findings:
    """The coordinator's gpu-health events as they come."""

    def __init__(self, the_cluster):
        self.follower = the_cluster.popen("events", "-f", "-o", "json")
        self.seen = []

    def next(self):
        limit = threading.Timer(cluster.COMMAND_LIMIT_S, self.follower.kill)
        limit.start()
        try:
            for line in self.follower.stdout:
                event = json.loads(line)
                if event["kind"] == "gpu-health":
                    self.seen.append(event["text"])
                    return event["text"]
        finally:
            limit.cancel()
        raise AssertionError("no finding; before: " + "; ".join(self.seen[-3:]))

    def close(self):
        self.follower.kill()
        self.follower.communicate()


class HealthTest(cluster.ClusterTest):
    agent_settings = "health_window_ms = 20\nhealth_silence_ms = 1500\n"

    def setUp(self):
        super().setUp()
        self.gpu = Gpu(self.cluster)
        self.cluster.call("policy", "pause", "node-a")
        self.findings = Findings(self.cluster)
        self.addCleanup(self.findings.close)

    def start_job(self, name="job"):
        """A job on node-a that ends by order: its id, and its process as this machine counts."""
        self.cluster.start(name, "hotset", *HOTSET, "--steps", "1000000")
        self.cluster.wait_for_line(name, r"^step \d+")
        return self.cluster.job(name)["id"], next(iter(self.cluster.pids("examples/hotset")))


class EveryRow(HealthTest):
    def check(self, row, text, source):
        self.assertIn(f"(Xid {row['xid']}, {source})", text)
        self.assertIn(row["name"], text)
        self.assertEqual("; cordon" in text, row["evacuation"] != "none", text)

    def test_each_xid_of_the_kernel_log_has_its_outcome(self):
        for row in rows("xid.csv"):
            if row["xid"] not in FOLLOWS_ANOTHER:
                self.gpu.log(self.gpu.xid(row["xid"]))
                self.check(row, self.findings.next(), "kernel-log")

    def test_each_xid_of_nvml_has_its_outcome(self):
        for row in rows("xid.csv"):
            if row["xid"] not in FOLLOWS_ANOTHER:
                self.gpu.control("xid", row["xid"])
                self.check(row, self.findings.next(), "nvml")

    def test_each_recovery_action_has_its_outcome(self):
        actions = [row for row in rows("recovery_action.csv") if row["value"] != "0"]
        for row in actions:
            self.gpu.log(self.gpu.xid(154,
                                      detail=f"GPU recovery action changed from 0x0 (None) to 0x{row['value']} (words)"))
            self.assertIn(f"recovery action {row['value']} ({row['nvml_name']})", self.findings.next())
        for row in actions:
            self.gpu.control("recovery", row["value"])
            text = self.findings.next()
            self.assertIn(f"recovery action {row['value']} ({row['nvml_name']})", text)
            self.assertEqual("; cordon" in text, row["evacuation"] != "none", text)


class WhatCounts(HealthTest):
    def test_the_process_named_in_the_log_line_is_the_victim(self):
        job, pid = self.start_job()
        self.gpu.log(self.gpu.xid(94, pid))
        self.assertRegex(self.findings.next(), rf"; {job}: Xid 94 .*its context is lost")
        self.gpu.log(self.gpu.xid(94, 1))  # an Xid of an unknown process
        self.assertRegex(self.findings.next(), rf"; {job}: Xid 94 .*another process's context is lost")
        self.gpu.log(self.gpu.xid(13, pid))
        self.assertNotIn(job + ":", self.findings.next())

    def test_simultaneous_events_are_decided_together(self):
        job, pid = self.start_job()
        self.gpu.log(self.gpu.xid(45, pid), self.gpu.xid(63), self.gpu.xid(94, pid))
        text = self.findings.next()
        self.assertRegex(text, rf"; {job}: Xid 94 .*its context is lost")
        self.gpu.log(self.gpu.xid(106))
        self.assertIn("(Xid 106,", self.findings.next())  # no other finding arrives in between

    def test_only_kernel_lines_about_this_nodes_gpus_count(self):
        self.gpu.log(self.gpu.xid(79), facility=1)
        self.gpu.log("usb 1-1: Product: " + self.gpu.xid(79), self.gpu.xid(79).replace(BUS, "0000:77:00"),
                     "NVRM: nonsense")
        self.gpu.log(self.gpu.xid(106))
        self.assertIn("(Xid 106,", self.findings.next())

    def test_pending_row_remapping_and_a_lost_gpu_are_findings(self):
        self.gpu.control("remap", "pending")
        self.assertIn("(Xid 63, nvml)", self.findings.next())
        self.gpu.log(f"NVRM: GPU {BUS}.0: GPU has fallen off the bus.")
        self.assertIn("lost the GPU", self.findings.next())


class Counters(HealthTest):
    def test_counters_are_shown_and_uncorrected_errors_count(self):
        self.wait_for_errors(lambda errors: errors["aggregate"])  # errors that are counted from here on are
                                                                  # new
        for kind, number in (("volatile-corrected", 7), ("aggregate-corrected", 70), ("rows-corrected", 2)):
            self.gpu.control("ecc", kind, number)
        self.gpu.control("ecc", "aggregate-uncorrected", 1)
        text = self.findings.next()
        self.assertIn("1 new uncorrected error of its memory", text)
        self.assertIn("; cordon", text)
        self.assertEqual(self.wait_for_errors(lambda errors: errors["aggregate"]
                                              and errors["aggregate"]["uncorrected"] == 1),
                         {"volatile": {"corrected": 7, "uncorrected": 0},
                          "aggregate": {"corrected": 70, "uncorrected": 1},
                          "remapped_rows": {"corrected": 2, "uncorrected": 0}})
        page = self.metrics_page()
        self.assertIn('gpumigrate_gpu_ecc_errors{node="node-a",gpu="0",counter="volatile",severity="corrected"} 7', page)
        self.assertIn('gpumigrate_gpu_remapped_rows{node="node-a",gpu="0",severity="corrected"} 2', page)

    def metrics_page(self):
        status, page = ask(self.cluster.home, "/metrics")
        self.assertEqual(status, 200, page)
        return page

    def wait_for_errors(self, enough):
        def errors_seen():
            errors = next(gpu for gpu in self.cluster.json("gpus") if gpu["node"] == "node-a")["errors"]
            return enough(errors) and errors
        return eventually(errors_seen, "the GPU has the errors that were made")


class Swap(HealthTest):
    def test_another_card_in_the_same_slot_is_a_new_card(self):
        self.gpu.log(self.gpu.xid(63))
        self.assertIn("(Xid 63,", self.findings.next())
        self.gpu.control("swap")
        text = self.findings.next()
        self.assertIn("no longer in the node", text)
        self.assertIn("that slot now holds a different card", text)
        self.assertNotIn("; cordon", text)
        self.gpu.log(self.gpu.xid(63))
        self.assertIn("(Xid 63, kernel-log)", self.findings.next())
        # The process that queries NVML has been restarted, and knows the new card.
        self.gpu.control("remap", "pending")
        self.assertIn("(Xid 63, nvml)", self.findings.next())
        old, gone, log, nvml = sorted(self.cluster.json("health")["findings"],
                                      key=lambda finding: finding["number"])
        self.assertEqual(old["gpu_uuid"], gone["gpu_uuid"])
        self.assertEqual(log["gpu_uuid"], nvml["gpu_uuid"])
        self.assertNotEqual(old["gpu_uuid"], log["gpu_uuid"])


class Watchdog(HealthTest):
    def test_a_hang_of_nvml_is_reported_and_blocks_no_operation(self):
        self.start_job("moved")
        self.gpu.control("hang-nvml")
        text = self.findings.next()
        self.assertIn("does not answer", text)
        self.assertIn("a probe of the GPU passes", text)
        self.assertIn("; cordon", text)
        self.assertEqual(self.cluster.migrate("moved", "node-b")["result"], "done")
        # The second channel continues. The next Xid counts as a lost GPU.
        self.gpu.log(self.gpu.xid(74))
        self.assertIn("counts as lost", self.findings.next())


class Restart(HealthTest):
    def test_each_event_is_handled_exactly_once_across_restarts(self):
        self.gpu.log(self.gpu.xid(63))
        self.assertIn("(Xid 63,", self.findings.next())
        self.gpu.control("recovery", 4)
        self.assertIn("DRAIN_AND_RESET", self.findings.next())
        agent = f"gpumigrate-agent --config {self.gpu.folder}"
        self.cluster.kill(agent)
        self.gpu.log(self.gpu.xid(95))
        self.cluster.up()
        self.assertIn("(Xid 95,", self.findings.next())
        self.cluster.kill(agent)
        self.cluster.up()
        self.gpu.log(self.gpu.xid(79))
        self.assertIn("(Xid 79,", self.findings.next())
        self.assertEqual(len(self.findings.seen), 4)
