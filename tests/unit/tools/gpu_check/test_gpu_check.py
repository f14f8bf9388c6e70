# SPDX-License-Identifier: Apache-2.0
"""gpu-check on the software GPU with a few items, and on a machine without a driver."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

OPTIONS = None


class GpuCheck(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.json = pathlib.Path(self.folder.name) / "check.json"
        self.markdown = pathlib.Path(self.folder.name) / "check.md"

    def tearDown(self):
        self.folder.cleanup()

    def check(self, *arguments, environment=None):
        return subprocess.run([OPTIONS.gpu_check, "--json", self.json, "--markdown", self.markdown,
                               *arguments],
                              env=dict(os.environ, **(environment or {})), stdout=subprocess.PIPE, text=True,
                              check=False)

    def test_missing_driver_is_reported_as_no_gpu(self):
        # An invalid library file represents a missing library on every machine.
        (pathlib.Path(self.folder.name) / "libcuda.so.1").write_text("no library")
        done = self.check(environment={"LD_LIBRARY_PATH": self.folder.name})
        self.assertEqual(0, done.returncode, done.stdout)
        self.assertIn("No GPU", done.stdout)
        self.assertTrue(json.loads(self.json.read_text())["no_gpu"])
        self.assertIn("No GPU", self.markdown.read_text())

    def test_items_on_the_software_gpu(self):
        done = self.check("--software", "--quick", "--only", "driver,nvml,doctor,rates,move_hotset,probe")
        self.assertEqual(0, done.returncode, done.stdout)
        report = json.loads(self.json.read_text())
        items = {item["name"]: item for item in report["items"]}
        self.assertTrue(report["software_gpu"])
        self.assertEqual({"driver", "nvml", "doctor", "rates", "move_hotset", "probe"}, set(items))
        for name in ("driver", "nvml", "doctor", "rates", "move_hotset"):
            self.assertEqual("passed", items[name]["status"], items[name])
        self.assertEqual(["done", "done"],
                         [move["result"] for move in items["move_hotset"]["figures"]["moves"]])
        self.assertTrue(items["doctor"]["figures"]["remap"]["import"], items["doctor"])
        abilities = {part["name"]: part["status"] for part in items["doctor"]["parts"]}
        self.assertEqual("passed", abilities["move programs that use ckpt.h, to other nodes"])
        self.assertIn("XidCritical", items["nvml"]["figures"]["event_types"])
        self.assertNotEqual("failed", items["probe"]["status"], items["probe"]["why"])
        self.assertIn("software GPU", self.markdown.read_text())

    def test_items_that_need_a_real_gpu_are_not_possible_on_the_software_gpu(self):
        named = {"nccl", "pytorch_eager", "pytorch_package"}
        done = self.check("--software", "--quick", "--only", ",".join(sorted(named)))
        self.assertEqual(0, done.returncode, done.stdout)
        items = {item["name"]: item for item in json.loads(self.json.read_text())["items"]}
        self.assertEqual(named, set(items) - {"gpu"})
        for name in named:
            self.assertEqual("not possible here", items[name]["status"], items[name])
            self.assertIn("software", items[name]["why"])

    def test_libcudart_is_refused_on_the_software_gpu_with_the_reason(self):
        done = self.check("--software", "--quick", "--only", "move_runtime")
        self.assertEqual(0, done.returncode, done.stdout)
        [item] = [item for item in json.loads(self.json.read_text())["items"] if item["name"] == "move_runtime"]
        self.assertEqual("not possible here", item["status"], item)
        if "nvcc" in item["why"]:
            self.skipTest(item["why"])
        self.assertEqual(1, item["figures"]["exit_code"], item)
        self.assertIn("(libcudart) does not run on the software GPU", item["figures"]["stderr"])
        self.assertIn("cudaErrorNotSupported", item["figures"]["stderr"])

    def test_a_plain_program_moves_by_swap_and_by_process_move(self):
        done = self.check("--software", "--quick", "--only", "move_torchlike")
        self.assertEqual(0, done.returncode, done.stdout)
        [item] = [item for item in json.loads(self.json.read_text())["items"] if item["name"] == "move_torchlike"]
        parts = {part["name"]: part for part in item["parts"]}
        self.assertEqual("passed", parts["digest"]["status"], item)
        self.assertEqual("passed", parts["2 swaps"]["status"], item)
        if "move" in parts:
            self.skipTest(parts["move"]["why"])
        self.assertEqual("passed", parts["2 moves"]["status"], item)
        self.assertEqual(["swap", "swap", "move", "move"], [move["kind"] for move in item["figures"]["moves"]])

    def test_unknown_items_are_refused(self):
        self.assertEqual(64, self.check("--only", "nothing").returncode)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu-check", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
