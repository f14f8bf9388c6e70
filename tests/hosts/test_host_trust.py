# SPDX-License-Identifier: Apache-2.0
"""Attacks on the coordinator and on nodes by a host without the right certificate, and by a listener on the
control network."""
import os
import secrets
import subprocess
import sys
import unittest

import cluster
import host_cluster
from capture import Capture
from host_cluster import AGENT_PORT, API_PORT, CONTROL, PEER_PORT, HostCluster
from test_hosts import TRAINING, HostsTest
from waiting import eventually

INTRUDER = host_cluster.ROOT / "tests/hosts/intruder.py"
STRANGER = "stranger"


class ClusterWithStranger(HostCluster):
    """The stranger knows all tokens of the cluster, and has the certificate of node-b."""
    strangers = (STRANGER,)

    def intruder(self, host, *words):
        """In the host's network, with the files of this machine: it may have stolen what it likes."""
        return list(map(str, ["nsenter", "--target", self.hosts.pid(host), "--net", "--", sys.executable, INTRUDER,
                              *words]))

    def try_as_stranger(self, *words):
        return subprocess.run(self.intruder(STRANGER, *words), capture_output=True, text=True, check=True,
                              timeout=cluster.COMMAND_LIMIT_S).stdout.strip()

    def as_client(self, role, *words):
        """The command on the third host, whose home is the folder that `cluster certificate` made: no token."""
        folder = self.folder / role
        if not folder.exists():
            self.gpumigrate("cluster", "certificate", "--role", role, "--out", folder,
                            "--folder", self.home / "coordinator/tls",
                            "--url", f"https://{self.hosts.address(CONTROL)}:{API_PORT}")
        return subprocess.run(["nsenter", "--target", str(self.hosts.pid(STRANGER)), "--net", "--",
                               cluster.BIN / "gpumigrate", *words],
                              env=self.environment | {"GPUMIGRATE_HOME": str(folder)}, capture_output=True,
                              text=True, timeout=cluster.COMMAND_LIMIT_S)

    def token(self, name):
        return (self.home / "coordinator" / name).read_text().strip()


class Trust(HostsTest):
    def setUp(self):
        self.cluster = ClusterWithStranger()
        self.addCleanup(self.cluster.down)
        self.addCleanup(self.show_logs_of_a_failure)
        self.control = self.cluster.hosts.address(CONTROL)
        self.own = self.cluster.tls_folder("node-b")

    def hello(self, name, *folder):
        return self.cluster.try_as_stranger("hello", self.control, AGENT_PORT, self.cluster.token("agent-token"),
                                            name, *folder)

    def jobs(self, *folder):
        return self.cluster.try_as_stranger("http", self.control, API_PORT, self.cluster.token("token"), *folder)

    def test_a_stranger_neither_becomes_a_node_nor_reads_jobs(self):
        self.cluster.start("job", "charlm", *TRAINING[:4], "--print-every", "1", "--steps", "1000000")
        self.cluster.wait_for_line("job", r"^step \d+")
        for turn in range(4):
            report = self.cluster.migrate("job", "node-b" if turn % 2 == 0 else "node-a", "--live")
            self.assertEqual((report["result"], report["verified"]), ("done", True), report)
            self.assertRegex(self.hello("node-a"), "^closed")
            self.assertEqual(self.hello("node-a", self.own), "refused")
            self.assertRegex(self.jobs(), "^closed")
            self.assertRegex(self.jobs(self.own), "^closed")
        self.assertTrue(self.cluster.all_ready())
        log = (self.cluster.home / "coordinator/gpumigrate-coordinator.log").read_text()
        self.assertNotIn("lost the connection to the agent of node-a", log)
        self.assertIn("the certificate is that of node node-b, not of node node-a", log)

    def test_a_foreign_listener_on_the_port_gets_no_token(self):
        self.assertEqual(self.as_client("admin", "jobs").returncode, 0)
        with (self.cluster.folder / "admin" / "client.toml").open("a") as settings:
            settings.write(f'token_file = "{self.cluster.home}/coordinator/token"\n')
        for port, name, connections in ((AGENT_PORT, "agent-token", 4), (API_PORT, "token", 1)):
            token = self.cluster.token(name)
            self.end_coordinator()
            taking = subprocess.Popen(self.cluster.intruder(CONTROL, "take", port, connections, self.heard()),
                                      stdout=subprocess.DEVNULL)
            if port == API_PORT:
                eventually(lambda: self.as_client("admin", "jobs").returncode != 0 and self.has_heard(),
                           "the command has tried")
            self.assertEqual(taking.wait(60), 0)
            heard = self.heard().read_bytes()
            self.assertGreater(len(heard), 0)
            self.assertNotIn(token.encode(), heard)
            self.cluster.up()

    def heard(self):
        return self.cluster.folder / "heard"

    def has_heard(self):
        return self.heard().exists() and self.heard().stat().st_size > 0

    def end_coordinator(self):
        self.heard().unlink(missing_ok=True)
        for pid, command in self.cluster.processes().items():
            if command.startswith(str(cluster.BIN / "gpumigrate-coordinator")) and \
                    str(self.cluster.config(CONTROL)) in command:
                end = os.pidfd_open(pid)
                os.kill(pid, 9)
                cluster.wait_for_end(end, cluster.COMMAND_LIMIT_S)
                os.close(end)

    def test_a_renewed_certificate_is_used_without_a_restart(self):
        def shown():
            return self.cluster.try_as_stranger("shown", self.control, AGENT_PORT, self.own)

        before = shown()
        self.assertRegex(before, "^[0-9a-f]{64}$")
        self.assertEqual(shown(), before)
        self.cluster.certify()
        self.assertNotEqual(shown(), before)
        self.assertTrue(self.cluster.all_ready())

    def ends(self):
        return {node["name"]: node["certificate_ends"] for node in self.cluster.json("nodes")}

    def test_certificates_near_their_expiry_are_renewed_while_jobs_move(self):
        authority = self.cluster.home / "coordinator/tls"
        self.cluster.gpumigrate("node", "certificate", "node-b", "--days", "2", "--host", self.cluster.hosts.address("node-b"),
                                "--folder", authority, "--out", self.own)
        self.cluster.restart_agent("node-b")
        eventually(self.cluster.all_ready, "node-b has come back")
        before, key = self.ends(), (self.own / "node.key").read_bytes()
        self.assertLess(before["node-b"], before["node-a"])
        self.cluster.start("job", "charlm", *TRAINING[:4], "--print-every", "1", "--steps", "1000000")
        self.cluster.wait_for_line("job", r"^step \d+")
        self.cluster.coordinator_settings = (f'certificate_authority = "{authority}"\n'
                                             'certificate_check_ms = 200\n')
        self.end_coordinator()
        self.cluster.up()
        eventually(lambda: self.ends()["node-b"] >= before["node-a"], "the certificate of node-b is renewed")
        self.assertEqual(self.ends()["node-a"], before["node-a"], "it was not due")
        self.assertNotEqual((self.own / "node.key").read_bytes(), key)
        self.assertEqual((self.own / "node.key").stat().st_mode & 0o777, 0o600)
        hosts = subprocess.run(["openssl", "x509", "-in", self.own / "node.pem", "-noout", "-ext", "subjectAltName"],
                               capture_output=True, text=True, check=True, timeout=60).stdout
        self.assertIn(f"IP Address:{self.cluster.hosts.address('node-b')}", hosts, "a renewed one keeps the addresses")
        renewals = self.cluster.call("events", "--type", "certificate-renewed").stdout.splitlines()
        self.assertEqual(len(renewals), 1, renewals)
        self.assertIn("node-b", renewals[0])
        for node in ("node-b", "node-a"):
            self.cluster.restart_agent(node)
            eventually(self.cluster.all_ready, f"{node} has come back")
        self.assertEqual(self.cluster.migrate("job", "node-b", "--live")["result"], "done")

    def test_a_join_token_admits_one_machine_once(self):
        authority = self.cluster.home / "coordinator/tls"
        self.cluster.coordinator_settings = f'certificate_authority = "{authority}"\n'
        self.end_coordinator()
        self.cluster.up()
        token, node = self.cluster.folder / "token", self.cluster.folder / "node-z"
        made = subprocess.run([cluster.BIN / "gpumigrate", "node", "token", "node-z", "--folder", authority, "--url",
                               f"https://{self.control}:{API_PORT}"], env=self.cluster.environment, check=True,
                              capture_output=True, text=True, timeout=cluster.COMMAND_LIMIT_S)
        self.assertEqual(len(made.stdout.splitlines()), 1)
        token.write_text(made.stdout)

        def join():
            return subprocess.run(["nsenter", "--target", str(self.cluster.hosts.pid(STRANGER)), "--net", "--",
                                   cluster.BIN / "gpumigrate", "node", "join", token, "--address",
                                   self.cluster.hosts.address(STRANGER), "--out", node],
                                  env=self.cluster.environment, capture_output=True, text=True,
                                  timeout=cluster.COMMAND_LIMIT_S)

        joined = join()
        self.assertEqual(joined.returncode, 0, joined.stderr)
        self.assertEqual(self.hello("node-z", node), "accepted")
        self.assertEqual(self.hello("node-a", node), "refused")
        self.assertFalse((node / "joining").exists())
        self.assertIn(f'peer_listen = "{self.cluster.hosts.address(STRANGER)}:7071"', (node / "agent.toml").read_text())
        self.end_coordinator()  # the coordinator must remember the used token across its restart
        self.cluster.up()
        again = join()
        self.assertEqual(again.returncode, 5, again.stderr)
        self.assertIn("was already used", again.stderr)

    def as_client(self, role, *words):
        return self.cluster.as_client(role, *words)

    def test_a_client_has_the_rights_of_its_certificate(self):
        self.cluster.start("job", "charlm", *TRAINING[:4], "--print-every", "1", "--steps", "1000000")
        self.cluster.wait_for_line("job", r"^step \d+")
        listed = self.as_client("viewer", "jobs")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertIn("running", listed.stdout)
        self.assertIn("not shown to the role viewer", self.as_client("viewer", "describe", "job").stdout)
        move = ("migrate", "job", "--to", "node-b", "--live")
        for role, words, needed in (("viewer", move, "operator"), ("viewer", ("logs", "job"), "admin"),
                                    ("operator", ("run", "--", "/bin/true"), "admin")):
            refused = self.as_client(role, *words)
            self.assertEqual(refused.returncode, 5, refused.stderr)
            self.assertIn(f"needs the role {needed}, and yours is {role}", refused.stderr)
        moved = self.as_client("operator", *move)
        self.assertEqual(moved.returncode, 0, moved.stderr)
        self.assertEqual(self.cluster.job("job")["node"], "node-b")
        self.assertRegex(self.as_client("admin", "logs", "job").stdout, r"(?m)^step \d+")


class ControlNetwork(unittest.TestCase):
    def test_secret_and_token_cannot_be_read(self):
        secret, plain = secrets.token_hex(32), secrets.token_hex(32)
        hosts = ClusterWithStranger()
        self.addCleanup(hosts.down)
        token = hosts.token("agent-token")
        with Capture(hosts.hosts, "node-a", 0) as capture:
            hosts.restart_agent("node-a")
            eventually(hosts.all_ready, "the node has come back")
            hosts.call("run", "--detach", "--name", "job", "--node", "node-a", "--env", f"SECRET={secret}", "--",
                       cluster.EXAMPLES / "charlm-plain", *TRAINING, "--steps", "100000")
            hosts.wait_for_line("job", r"^step \d+")
            # Plain text is found in the capture: an unauthenticated peer sends a frame with plain text.
            hosts.try_as_stranger("hello", hosts.hosts.address("node-a"), PEER_PORT, plain, "node-b")
        hosts.down()
        self.assertIn(plain.encode(), capture.payload)
        self.assertNotIn(secret.encode(), capture.payload)
        self.assertNotIn(token.encode(), capture.payload)


if __name__ == "__main__":
    unittest.main()
