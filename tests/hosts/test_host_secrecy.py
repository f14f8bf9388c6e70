# SPDX-License-Identifier: Apache-2.0
"""A listener on the data network reads a moving job without TLS, and nothing of it with TLS. The control
network is another one here."""
import re
import secrets
import unittest
import zlib

import cluster
from capture import Capture
from host_cluster import HostCluster

WINDOW_BYTES = 48
WINDOWS = 200
WEIGHTS = ["--weights", "6MiB", "--cache", "2MiB", "--seed", "5", "--requests", "100000", "--request-ms", "5"]


def incompressible_windows(payload):
    """Parts of what was captured that occur by chance nowhere else."""
    windows = []
    for index in range(WINDOWS * 4):
        at = index * max(1, len(payload) // (WINDOWS * 4))
        window = payload[at:at + WINDOW_BYTES]
        if len(set(window)) > WINDOW_BYTES // 2 and len(zlib.compress(window)) >= WINDOW_BYTES:
            windows.append(window)
    return windows[:WINDOWS]


class DataNetworkIsRead(unittest.TestCase):
    """Each test has its hosts: networks 0 (control) and 1 (data)."""

    def capture_of_a_move(self, transport, program, arguments, way, secret="none"):
        hosts = HostCluster(transports=(None, transport))
        self.addCleanup(hosts.down)
        hosts.call("run", *way, "--detach", "--name", "job", "--node", "node-a", "--env", f"SECRET={secret}",
                   "--", cluster.EXAMPLES / program, *arguments)
        hosts.wait_for_line("job", r"^(step|request) \d+")
        with Capture(hosts.hosts, "node-a", 1) as capture:
            report = hosts.migrate("job", "node-b", "--codec", "raw")
        self.assertEqual((report["network"], report["transport"]), ("net1", transport))
        self.assertGreater(len(capture.payload), report["wire_bytes"] // 2)  # the capture read the traffic
        hosts.down()
        return capture.payload

    def test_tls_hides_device_memory_from_a_network_capture(self):
        job = ("serve", WEIGHTS, ("--cooperative",))
        canaries = incompressible_windows(self.capture_of_a_move("ucx-trusted", *job))
        self.assertGreater(len(canaries), WINDOWS // 4)
        again = self.capture_of_a_move("ucx-trusted", *job)  # the weights are the same, so the bytes are the
                                                             # same
        seen = sum(canary in again for canary in canaries)
        self.assertGreater(seen, len(canaries) // 2)
        hidden = self.capture_of_a_move("tls", *job)
        self.assertEqual(sum(canary in hidden for canary in canaries), 0)

    def test_tls_hides_host_memory_and_environment_from_a_network_capture(self):
        secret = secrets.token_hex(32)
        job = ("charlm-plain", ["--params", "200000", "--seed", "3", "--print-every", "1", "--step-ms", "5",
                                "--steps", "100000"], ())
        self.assertTrue(re.search(secret.encode(), self.capture_of_a_move("ucx-trusted", *job, secret)))
        self.assertFalse(re.search(secret.encode(), self.capture_of_a_move("tls", *job, secret)))

    def test_tls_hides_an_image_that_is_sent_to_another_nodes_store(self):
        secret = secrets.token_hex(32)
        hosts = HostCluster(transports=(None, "tls"))
        self.addCleanup(hosts.down)
        hosts.call("run", "--detach", "--name", "job", "--node", "node-a", "--env", f"SECRET={secret}", "--",
                   cluster.EXAMPLES / "charlm-plain", "--params", "200000", "--seed", "3", "--print-every", "1",
                   "--step-ms", "5", "--steps", "100000")
        hosts.wait_for_line("job", r"^step \d+")
        with Capture(hosts.hosts, "node-a", 1) as capture:
            hosts.call("snapshot", "job", "--to", "node-b")
        hosts.down()
        self.assertGreater(len(capture.payload), 1 << 20)  # the capture read the traffic
        self.assertNotIn(secret.encode(), capture.payload)
        self.assertNotIn(b"GPVF", capture.payload)  # the magic at the start of each message


if __name__ == "__main__":
    unittest.main()
