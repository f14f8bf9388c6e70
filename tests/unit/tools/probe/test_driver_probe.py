# SPDX-License-Identifier: Apache-2.0
"""driver_probe on the software driver, as it is and with checkpoints added: every variant is judged, whatever
hangs or dies."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

OPTIONS = None


def probe(*arguments, test=None):
    """Exit status and report; `test` takes the driver that has checkpoints, with this order."""
    environment = dict(os.environ)
    if test is not None:
        environment.update(PROBE_TEST=test, REAL_CUDA=f"{OPTIONS.cudasim}/libcuda.so.1",
                           CUDASIM_DEVICE=OPTIONS.executor,
                           LD_LIBRARY_PATH=OPTIONS.checkpoint_driver)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "report.json"
        done = subprocess.run([OPTIONS.probe, "--json", path, "--regions", "3", "--region-mib", "2",
                               *arguments],
                              env=environment, stdout=subprocess.PIPE, text=True, check=False)
        return done.returncode, json.loads(path.read_text())


def variants(report):
    return {variant["name"]: variant for variant in report["variants"]}


def steps(variant):
    return [(step["step"], step["outcome"]) for step in variant["steps"]]


class DriverProbe(unittest.TestCase):
    def test_memory_parts_of_the_probe_pass(self):
        status, report = probe()
        self.assertEqual(0, status, [(v["name"], v["reason"]) for v in report["variants"]])
        fd = variants(report)["fd"]
        self.assertEqual("passed", fd["parts"]["memory"])
        self.assertEqual("passed", fd["parts"]["give_back"])
        self.assertEqual("passed", fd["parts"]["make_anew"])
        self.assertIn(("verify what the agent filled", "passed"), steps(fd))

    def test_whole_sequence_of_the_probe_passes(self):
        status, report = probe(test="")
        self.assertEqual(0, status, [(v["name"], v["reason"]) for v in report["variants"]])
        for name in ("kept", "closed", "kept-once-exported", "fd", "fd-mapped", "closed-other-gpu",
                     "fd-mapped-other-gpu"):
            self.assertEqual("passed", variants(report)[name]["outcome"], variants(report)[name])
        self.assertIn(("verify meanwhile", "passed"), steps(variants(report)["fd"]))
        self.assertIn(("import memory of GPU 1", "passed"), steps(variants(report)["closed-other-gpu"]))

    def test_a_hang_is_reported_and_the_remaining_variants_continue(self):
        status, report = probe("--step-seconds", "1", "--only", "fd", test="hang")
        self.assertEqual(1, status)
        fd = variants(report)["fd"]
        self.assertEqual("hung", fd["outcome"])
        self.assertEqual(("cuCheckpointProcessCheckpoint", "hung"), steps(fd)[-1])
        self.assertFalse(fd["unkillable"])
        self.assertEqual("not requested", variants(report)["closed"]["reason"])

    def test_death_of_a_probe_process_is_reported(self):
        status, report = probe("--only", "closed", test="die")
        self.assertEqual(1, status)
        self.assertEqual("ended", variants(report)["closed"]["outcome"])

    def test_probe_continues_after_a_refused_checkpoint(self):
        status, report = probe("--only", "fd-mapped", test="fail")
        self.assertEqual(1, status)
        variant = variants(report)["fd-mapped"]
        self.assertEqual("failed", variant["parts"]["checkpoint"])
        self.assertIn("CUDA_ERROR_NOT_SUPPORTED", variant["reason"])
        self.assertIn(("cuCheckpointProcessUnlock", "passed"), steps(variant))
        self.assertEqual("passed", variant["parts"]["give_back"])

    def test_missing_driver_is_reported_with_its_exit_code(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "report.json"
            environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
            (pathlib.Path(folder) / "libcuda.so.1").write_text("no library")
            environment["LD_LIBRARY_PATH"] = folder
            done = subprocess.run([OPTIONS.probe, "--json", path], env=environment, stdout=subprocess.PIPE,
                                  check=False)
            self.assertEqual(3, done.returncode)
            self.assertTrue(json.loads(path.read_text())["no_driver"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--probe", required=True)
    parser.add_argument("--cudasim", required=True)
    parser.add_argument("--executor", required=True)
    parser.add_argument("--checkpoint-driver", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
