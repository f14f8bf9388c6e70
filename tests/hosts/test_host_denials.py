# SPDX-License-Identifier: Apache-2.0
"""Certificates that are refused before their end: a client's that was copied, and a node's that was removed. The
stranger (test_host_trust.py) has copies of them."""
import shutil
import sqlite3
import subprocess
import unittest

import cluster
from host_cluster import AGENT_PORT, API_PORT, CONTROL
from test_host_trust import STRANGER, ClusterWithStranger
from test_hosts import HostsTest
from waiting import eventually

METRICS_PORT = 9400


class ClusterWithMetrics(ClusterWithStranger):
    def metrics_address(self, node):
        return f"{self.hosts.address(node)}:{METRICS_PORT}"


class Denials(HostsTest):
    def setUp(self):
        self.cluster = ClusterWithMetrics()
        self.addCleanup(self.cluster.down)
        self.addCleanup(self.show_logs_of_a_failure)
        self.control = self.cluster.hosts.address(CONTROL)
        self.authority = self.cluster.home / "coordinator/tls"

    def client(self, name, role):
        """A folder that `cluster certificate` made."""
        folder = self.cluster.folder / name
        self.cluster.gpumigrate("cluster", "certificate", "--role", role, "--out", folder, "--folder",
                                self.authority, "--url", f"https://{self.control}:{API_PORT}")
        return folder

    def command(self, folder, *words):
        return subprocess.run(["nsenter", "--target", str(self.cluster.hosts.pid(STRANGER)), "--net", "--",
                               cluster.BIN / "gpumigrate", *map(str, words)],
                              env=self.cluster.environment | {"GPUMIGRATE_HOME": str(folder)}, capture_output=True,
                              text=True, timeout=cluster.COMMAND_LIMIT_S)

    def asks(self, folder, address=None, port=API_PORT, path="/v1/jobs"):
        return self.cluster.try_as_stranger("http", address or self.control, port, "", folder, path).split()[0]

    def reads_metrics(self, folder):
        return self.asks(folder, self.cluster.hosts.address("node-a"), METRICS_PORT, "/metrics")

    def end_coordinator(self):
        self.cluster.end_daemon(CONTROL)

    def test_a_copied_client_certificate_is_refused_once_it_is_denied(self):
        lost, other, admin = self.client("lost", "operator"), self.client("other", "operator"), self.client("admin", "admin")
        for folder in (lost, other):
            self.assertEqual(self.asks(folder), "answered")
            self.assertEqual(self.reads_metrics(folder), "answered")
        waits = subprocess.Popen(self.cluster.intruder(STRANGER, "http", self.control, API_PORT, "", lost,
                                                       "/v1/events?type=job-ended&follow_ms=60000", "tell"),
                                 stdout=subprocess.PIPE, text=True)
        self.assertEqual(waits.stdout.readline(), "sent\n")

        denied = self.command(admin, "cluster", "deny", lost / "client.pem", "--reason", "laptop stolen")
        self.assertEqual(denied.returncode, 0, denied.stderr)
        self.assertEqual(waits.communicate(timeout=cluster.COMMAND_LIMIT_S)[0].split()[:1], ["closed"])
        self.assertEqual(self.asks(lost), "closed")
        eventually(lambda: self.reads_metrics(lost) == "closed", "node-a has learnt of it")
        self.assertEqual(self.asks(other), "answered")
        self.assertEqual(self.reads_metrics(other), "answered")
        self.assertEqual(self.command(other, "cluster", "denied").returncode, 5)
        listed = cluster.json.loads(self.command(admin, "cluster", "denied", "-o", "json").stdout)
        self.assertEqual([(entry["of"], entry["reason"]) for entry in listed],
                         [("a client, role operator", "laptop stolen")])
        serial = listed[0]["serial"]
        self.assertEqual(self.denied_in_a_backup(), [serial])

        self.end_coordinator()
        self.cluster.restart_agent("node-a")  # the agent restarts without a coordinator
        eventually(lambda: self.reads_metrics(other) == "answered", "node-a serves again")
        self.assertEqual(self.reads_metrics(lost), "closed")
        self.cluster.up()
        self.assertEqual(self.asks(lost), "closed")
        allowed = self.command(admin, "cluster", "allow", "--serial", serial.upper())
        self.assertEqual(allowed.returncode, 0, allowed.stderr)
        self.assertEqual(self.asks(lost), "answered")
        eventually(lambda: self.reads_metrics(lost) == "answered", "node-a has learnt of it")

    def denied_in_a_backup(self):
        file, restored = self.cluster.home / "coordinator/copy.backup", self.cluster.folder / "restored"
        self.cluster.call("backup", file)
        subprocess.run([cluster.BIN / "gpumigrate", "backup", "restore", file], check=True, capture_output=True,
                       env=self.cluster.environment | {"GPUMIGRATE_HOME": str(restored)},
                       timeout=cluster.COMMAND_LIMIT_S)
        store = sqlite3.connect(restored / "coordinator/state.db")
        self.addCleanup(store.close)
        return [serial for serial, in store.execute("SELECT serial FROM denied_certificates")]

    def hello(self, folder):
        return self.cluster.try_as_stranger("hello", self.control, AGENT_PORT, self.cluster.token("agent-token"),
                                            "node-b", folder)

    def test_a_removed_node_joins_with_a_new_certificate_and_the_old_one_is_refused(self):
        old, new = self.cluster.folder / "old", self.cluster.folder / "new"
        shutil.copytree(self.cluster.tls_folder("node-b"), old)
        self.cluster.coordinator_settings = f'certificate_authority = "{self.authority}"\n'
        self.end_coordinator()
        self.cluster.up()
        self.cluster.end_daemon("node-b")
        self.assertEqual(self.hello(old), "accepted")
        self.cluster.call("node", "rm", "node-b")
        self.assertRegex(self.hello(old), "^closed")
        self.cluster.call("node", "add", "node-b")
        self.assertEqual(self.hello(old), "accepted")
        self.cluster.start_agent("node-b")
        eventually(self.cluster.all_ready, "node-b has come back")
        self.cluster.call("node", "rm", "node-b")
        token = self.cluster.folder / "token"
        made = subprocess.run([cluster.BIN / "gpumigrate", "node", "token", "node-b", "--folder", self.authority,
                               "--url", f"https://{self.control}:{API_PORT}"], env=self.cluster.environment,
                              check=True, capture_output=True, text=True, timeout=cluster.COMMAND_LIMIT_S)
        token.write_text(made.stdout)
        joined = self.command(self.cluster.home, "node", "join", token, "--address",
                              self.cluster.hosts.address(STRANGER), "--out", new)
        self.assertEqual(joined.returncode, 0, joined.stderr)
        self.assertEqual(self.hello(new), "accepted")
        self.assertRegex(self.hello(old), "^closed")
        self.end_coordinator()
        self.cluster.start_coordinator()
        eventually(lambda: self.hello(new) == "accepted", "the coordinator serves again")
        self.assertRegex(self.hello(old), "^closed")


if __name__ == "__main__":
    unittest.main()
