# SPDX-License-Identifier: Apache-2.0
"""RDMA in a virtual machine with a soft-RoCE device (vm.py): the transports' conformance suite, a killed
peer, a cooperative move, and `tools/rdma-check`. Skipped where QEMU is not installed (`tools/vm setup`)."""
import os
import pathlib
import tempfile
import unittest

import vm

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["GPUMIGRATE_BUILD"]).resolve()
ADDRESS = "10.9.0.1"
MEMORY_MIB = 3072


@unittest.skipIf(vm.missing(), f"not installed: {', '.join(vm.missing())} (`tools/vm setup`)")
class Vm(unittest.TestCase):
    def run_in_vm(self, *command, limit_s=600):
        """Returns its status and what it printed."""
        with tempfile.NamedTemporaryFile("w+") as output:
            status = vm.run(["env", f"GPUMIGRATE_TEST_RDMA={ADDRESS}", f"GPUMIGRATE_BUILD={BUILD}", *command],
                            MEMORY_MIB, limit_s, output)
            output.seek(0)
            return status, output.read()

    def assert_succeeds(self, *command, limit_s=600):
        status, output = self.run_in_vm(*command, limit_s=limit_s)
        self.assertEqual(status, 0, output[-4000:])
        return output

    def test_exit_status_and_output_of_the_vm_are_returned(self):
        status, output = self.run_in_vm("sh", "-c", "echo to; echo both >&2; touch /etc/mark; exit 7")
        self.assertEqual((status, output), (7, "to\nboth\n"))
        self.assertFalse(os.path.exists("/etc/mark"))

    def test_a_command_in_the_vm_is_killed_at_its_deadline(self):
        self.assertEqual(self.run_in_vm("sleep", "1000", limit_s=2)[0], 124)

    def test_the_transport_suite_passes_over_rdma(self):
        output = self.assert_succeeds(BUILD / "tests" / "transport_test", "--gtest_filter=*/rdma*",
                                      limit_s=900)
        self.assertNotIn("SKIPPED", output)

    def test_a_lane_closes_when_its_peer_is_killed(self):
        output = self.assert_succeeds(BUILD / "tests" / "transport_process_test", "--gtest_filter=*/rdma")
        self.assertNotIn("SKIPPED", output)

    def test_a_job_moves_over_rdma(self):
        output = self.assert_succeeds(ROOT / "tests" / "integration" / "run", "rdma", limit_s=900)
        self.assertNotIn("skipped", output)

    def test_the_rdma_check_of_a_site_succeeds(self):
        output = self.assert_succeeds(ROOT / "tools" / "rdma-check", "--bytes", str(16 << 20), limit_s=900)
        self.assertIn("RDMA lane", output)


if __name__ == "__main__":
    unittest.main()
