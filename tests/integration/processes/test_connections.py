# SPDX-License-Identifier: Apache-2.0
"""TCP connections of unmodified programs to other programs (programs/connections_job.py): a move is refused, or ends
them at its switch. A move that goes back leaves them as they were."""
import os
import pathlib
import re
import socket
import threading
import unittest

from adopting import needs_criu
from cluster import COMMAND_LIMIT_S, ClusterTest, network_of
from fault_points import Point
from test_python_jobs import PYTHON
from waiting import eventually

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "programs" / "connections_job.py"
STEPS = 1500
CLIENTS = ("127.0.0.1", "::1", "127.0.0.1")
OVER_HOSTS = os.environ.get("GPUMIGRATE_TEST_HOSTS") == "1"


class ConnectionsTest(ClusterTest):
    @classmethod
    def setUpClass(cls):
        needs_criu()

    def agent(self, node):
        return next(pid for pid, command in self.cluster.processes().items()
                    if re.search(rf"gpumigrate-agent .*/{node}", command))

    def start(self, kind, *options, peer=None):
        environment = ("--env", f"GPUMIGRATE_TEST_PEER={peer}") if peer else ()
        self.cluster.call("run", "--detach", "--name", "job", "--node", "node-a", *options, *environment, "--env",
                          f"GPUMIGRATE_TEST_HURRY={self.cluster.hurry('job')}", "--", PYTHON, PROGRAM, kind, STEPS)
        self.cluster.wait_for_line("job", r"^step \d+")

    def listen(self):
        """A listener on the host of node-a, where the job starts, and its address."""
        with network_of(self.agent("node-a")):
            listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        return listener, f"127.0.0.1:{listener.getsockname()[1]}"

    def connect(self, node, port, addresses=CLIENTS):
        with network_of(self.agent(node)):
            clients = [socket.create_connection((address, port), timeout=COMMAND_LIMIT_S) for address in addresses]
        for client in clients:
            self.addCleanup(client.close)
        return clients

    def exchange(self, clients):
        for number, client in enumerate(clients):
            word = number.to_bytes(4, "big")
            client.sendall(word)
            self.assertEqual(client.recv(4), word[::-1])

    def start_server(self, *options):
        self.start("server", *options)
        port = int(self.cluster.wait_for_line("job", r"^listening at (\d+)").group(1))
        clients = self.connect("node-a", port)
        self.exchange(clients)
        return port, clients

    def assert_reset(self, connection):
        with self.assertRaises(ConnectionResetError):
            connection.recv(4)

    def finish(self):
        self.assertEqual(self.cluster.finish("job")["steps"], STEPS)
        self.assert_steps_in_order(self.cluster.log("job"))


class Reset(ConnectionsTest):
    def test_clients_of_a_server_are_reset_and_find_it_again(self):
        port, clients = self.start_server()
        refused = self.cluster.run("migrate", "job", "--to", "node-b")
        self.assertEqual(refused.returncode, 5, refused.stdout + refused.stderr)
        self.assertRegex(refused.stdout + refused.stderr, r"is an open TCP connection[^;]*--connections reset")
        planned = self.cluster.json("migrate", "job", "--to", "node-b", "--connections", "reset", "--dry-run")
        self.assertEqual((planned["possible"], planned["options"]["connections"]), (True, "reset"), planned)
        self.assertEqual(planned["warnings"], ["3 TCP connections to other programs would end at the switch (connections reset)"])
        self.exchange(clients)
        report = self.cluster.migrate("job", "node-b", "--connections", "reset")
        self.assertEqual((report["result"], report["verified"]), ("done", True), report)
        for client in clients:
            self.assert_reset(client)
        self.exchange(self.connect("node-b", port))
        eventually(lambda: self.cluster.log("job").count("a client was lost: ECONNRESET") == len(CLIENTS),
                   "the server reads that its clients were lost")
        self.finish()

    def test_setting_of_the_job_holds_for_drains(self):
        listener, address = self.listen()
        closer = threading.Thread(target=lambda: listener.accept()[0].close())
        closer.start()
        self.addCleanup(closer.join)
        self.start("pool", "--connections", "reset", peer=address)
        self.assertEqual(self.cluster.job("job")["connections"], "reset")
        self.assertIn("reset: a move to another node resets the connections", self.cluster.call("describe", "job").stdout)
        refused = self.cluster.run("migrate", "job", "--to", "node-b", "--connections", "refuse")
        self.assertEqual(refused.returncode, 5, refused.stdout + refused.stderr)
        self.cluster.call("drain", "node-a", "--timeout", "90s")
        self.assertEqual(self.cluster.job("job")["node"], "node-b")
        self.finish()
        self.assertRegex(self.cluster.log("job"), r"(?m)^closed: ECONNRESET$")


class GoesBack(ConnectionsTest):
    """The source's agent is killed when the job is dumped. The job goes on at the source with all connections."""

    def crash(self):
        self.cluster.arm("agent.node-a", Point.SOURCE_DUMPED)
        agent = self.agent("node-a")
        with self.cluster.popen("migrate", "job", "--to", "node-b", "--connections", "reset") as moving:
            eventually(lambda: self.cluster.fired("agent.node-a", Point.SOURCE_DUMPED), "the job is dumped")
            eventually(lambda: agent not in self.cluster.processes(), "the agent has ended")
            self.cluster.up()
            moving.communicate(timeout=COMMAND_LIMIT_S)
        self.assertEqual(self.cluster.job("job")["node"], "node-a")

    def test_clients_of_a_server(self):
        _, clients = self.start_server()
        for client in clients:
            client.sendall(b"\0\0\0\1")
        self.crash()
        for client in clients:
            self.assertEqual(client.recv(4), b"\1\0\0\0")
        self.exchange(clients)
        self.finish()

    @unittest.skipUnless(OVER_HOSTS, "connections within the job are refused within one network")
    def test_connections_within_and_to_others(self):
        listener, address = self.listen()
        self.start("mixed", peer=address)
        self.cluster.wait_for_line("job", "^connected")
        peer, _ = listener.accept()
        self.addCleanup(peer.close)
        self.crash()
        peer.sendall(b"word")
        self.finish()
        self.assertRegex(self.cluster.log("job"), r"(?m)^outer: data$")


class Mixed(ConnectionsTest):
    def test_connections_within_the_job_stay(self):
        listener, address = self.listen()
        self.start("mixed", peer=address)
        self.cluster.wait_for_line("job", "^connected")
        peer, _ = listener.accept()
        self.addCleanup(peer.close)
        if not OVER_HOSTS:
            refused = self.cluster.run("migrate", "job", "--to", "node-b", "--connections", "reset")
            self.assertEqual(refused.returncode, 5, refused.stdout + refused.stderr)
            self.assertIn("cannot be moved within one network", refused.stdout + refused.stderr)
            return
        report = self.cluster.migrate("job", "node-b", "--connections", "reset")
        self.assertEqual((report["result"], report["verified"]), ("done", True), report)
        self.assert_reset(peer)
        self.finish()  # the program checks the data that it receives over its own connections
        self.assertRegex(self.cluster.log("job"), r"(?m)^outer: ECONNRESET$")


if __name__ == "__main__":
    unittest.main()
