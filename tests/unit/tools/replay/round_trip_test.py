# SPDX-License-Identifier: Apache-2.0
"""Programs under the shim with GPUMIGRATE_TRACE, then their traces on the same driver: nearly all calls are made again, and
each is answered as before."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

OPTIONS = None
LIMIT_S = 120


class RoundTrip(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_program(self, program, *arguments, traced=True):
        environment = dict(os.environ, LD_PRELOAD=OPTIONS.shim)
        if traced:
            environment["GPUMIGRATE_TRACE"] = str(self.folder / "trace")
        return subprocess.run([pathlib.Path(OPTIONS.examples, program), *arguments], env=environment, check=True,
                              capture_output=True, text=True, timeout=LIMIT_S).stdout

    def replay(self, path, exits=(0,)):
        done = subprocess.run([OPTIONS.replay, "--trace", path, "--json"], capture_output=True, text=True, timeout=LIMIT_S)
        self.assertIn(done.returncode, exits, f"{path}\n{done.stdout[-3000:]}{done.stderr}")
        return json.loads(done.stdout)

    def traced(self, program, *arguments):
        self.run_program(program, *arguments)
        (path,) = self.folder.glob("trace.*")
        return path

    def test_torchlike(self):
        """Pools, expandable segments, captured graphs, pinned blocks, events."""
        path = self.traced("torchlike", "--steps", "6")
        done = self.replay(path)
        self.assertGreater(done["traced"], 1000)
        self.assertEqual(done["differences"], [])
        self.assertEqual({left["function"] for left in done["left_out"]}, {"cuModuleLoad"})
        for function in ("cuMemCreate", "cuStreamBeginCapture_v2", "cuGraphLaunch", "cuMemAllocAsync", "cuMemHostAlloc"):
            self.assertIn(function, done["functions"])

    def test_stress(self):
        """Several threads, each with a context that is current to it."""
        path = self.traced("stress", "--threads", "3", "--streams", "6", "--steps", "6", "--seed", "3", "--memory", "64MiB",
                           "--most-bytes", "8MiB")
        threads = {line.split()[0] for line in path.read_text().splitlines()[1:]}
        self.assertGreater(len(threads), 3)
        self.assertEqual(self.replay(path)["differences"], [])

    def test_the_trace_has_each_call(self):
        """As many kernels as the unmodified program launches for each step; the program itself is not changed by it."""
        arguments = ("--params", "20000", "--print-every", "1")
        few = self.traced("charlm-plain", *arguments, "--steps", "2")
        few_launches = few.read_text().count(" cuLaunchKernel 0 ")
        few.unlink()
        many = self.traced("charlm-plain", *arguments, "--steps", "4")
        many_launches = many.read_text().count(" cuLaunchKernel 0 ")
        self.assertGreater(few_launches, 0)
        self.assertEqual((many_launches - few_launches) % 2, 0)
        self.assertGreater(many_launches, few_launches)
        many.unlink()
        digests = [json.loads(self.run_program("charlm-plain", *arguments, "--steps", "4", traced=traced).splitlines()[-1])["digest"]
                   for traced in (False, True)]
        self.assertEqual(*digests)

    def test_another_answer_is_found(self):
        path = self.traced("charlm-plain", "--params", "20000", "--steps", "1")
        path.write_text(path.read_text().replace(" cuDeviceGetCount 0 ", " cuDeviceGetCount 801 "))
        differences = self.replay(path, exits=(1,))["differences"]
        self.assertEqual([(one["function"], one["traced"], one["answered"]) for one in differences],
                         [("cuDeviceGetCount", 801, 0)])

    def test_file_that_is_there_is_left_alone(self):
        script = 'echo mine > "$GPUMIGRATE_TEST_FILE.$$"; LD_PRELOAD="$GPUMIGRATE_TEST_SHIM" exec "$0" --params 20000 --steps 1'
        environment = dict(os.environ, GPUMIGRATE_TRACE=str(self.folder / "trace"), GPUMIGRATE_TEST_FILE=str(self.folder / "trace"),
                           GPUMIGRATE_TEST_SHIM=OPTIONS.shim)
        subprocess.run(["/bin/sh", "-c", script, pathlib.Path(OPTIONS.examples, "charlm-plain")], env=environment, check=True,
                       capture_output=True, timeout=LIMIT_S)
        first, second = sorted(self.folder.glob("trace.*"))
        self.assertEqual(first.read_text(), "mine\n")
        self.assertEqual(second.name, first.name + ".1")
        self.assertEqual(self.replay(second)["differences"], [])

    def test_file_that_cannot_be_written_does_not_harm_the_program(self):
        environment = dict(os.environ, LD_PRELOAD=OPTIONS.shim, GPUMIGRATE_TRACE="/no/such/folder/trace")
        subprocess.run([pathlib.Path(OPTIONS.examples, "charlm-plain"), "--params", "20000", "--steps", "1"], env=environment,
                       check=True, capture_output=True, timeout=LIMIT_S)

    def test_refusals(self):
        other = self.folder / "other"
        other.write_text("hello\n")
        done = subprocess.run([OPTIONS.replay, "--trace", other], capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, 5)
        self.assertIn("Line 1 of the trace", done.stderr)
        self.assertEqual(subprocess.run([OPTIONS.replay], capture_output=True, timeout=LIMIT_S).returncode, 64)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("replay", "shim", "examples"):
        parser.add_argument(f"--{name}", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
