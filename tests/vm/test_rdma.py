# SPDX-License-Identifier: Apache-2.0
"""A cooperative job moves between two nodes over RDMA. Both use the device at the address that
GPUMIGRATE_TEST_RDMA names; `tools/vm` has one at 10.9.0.1 (test_vm.py). Payloads between nodes go through the
network, also on one machine."""
import os
import pathlib
import re
import unittest

from cluster import ClusterTest, run_unmoved

ADDRESS = os.environ.get("GPUMIGRATE_TEST_RDMA", "")
WEIGHTS = 16 << 20
ARGUMENTS = ["--weights", str(WEIGHTS), "--cache", "1MiB", "--seed", "5", "--requests", "3000",
             "--request-ms", "5"]


def packets_sent():
    """By all RDMA devices of this machine."""
    counters = pathlib.Path("/sys/class/infiniband").glob("*/ports/*/hw_counters/sent_pkts")
    return sum(int(counter.read_text()) for counter in counters)


@unittest.skipUnless(ADDRESS, "GPUMIGRATE_TEST_RDMA names no address of an RDMA device")
class RdmaMoves(ClusterTest):
    memory = "256MiB"
    agent_settings = f"""
[[network]]
name = "fast"
address = "{ADDRESS}"
transport = "rdma-trusted"
"""

    def test_job_moves_over_rdma_live_and_by_stop_copy(self):
        expected = run_unmoved("serve", *ARGUMENTS, memory=self.memory)
        self.cluster.start("job", "serve", *ARGUMENTS)
        for node, way in (("node-b", "--live"), ("node-a", "--stop-copy")):
            before = packets_sent()
            report = self.cluster.migrate("job", node, way)
            self.assertEqual((report["network"], report["transport"]), ("fast", "rdma-trusted"))
            # A packet of rxe carries at most 4 KiB.
            self.assertGreater(packets_sent() - before, WEIGHTS // 4096)
        self.assertEqual(self.cluster.finish("job")["digest"], expected["digest"])
        logs = "".join(path.read_text() for path in self.cluster.home.rglob("*.log"))
        self.assertEqual(len(re.findall(r"lanes: id m\d+-\w+ open \d+ within_this_machine 0\b", logs)), 2)


if __name__ == "__main__":
    unittest.main()
