# SPDX-License-Identifier: Apache-2.0
"""The conformance suite and stress, with and without the shim before the same driver: the same tests are run,
skipped and passed, the driver answers each test with the same codes, and stress prints the same line."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAMS = None
STRESS = ["--threads", "4", "--streams", "12", "--steps", "60", "--seed", "9", "--most-bytes", "8MiB",
          "--memory", "32MiB"]


class WithAndWithoutTheShim(unittest.TestCase):
    maxDiff = None

    def run_program(self, program, arguments, shim, environment=()):
        variables = dict(os.environ, **dict(environment))
        if shim:
            variables["LD_PRELOAD"] = PROGRAMS.shim
        return subprocess.run([program, *arguments], env=variables, capture_output=True, text=True,
                              timeout=280)

    def suite(self, shim):
        """{test: its result}, and {test: the set of (function, code) that it was answered}."""
        with tempfile.TemporaryDirectory() as folder:
            report, answers = pathlib.Path(folder, "report.json"), pathlib.Path(folder, "answers")
            run = self.run_program(PROGRAMS.conformance, [f"--gtest_output=json:{report}"], shim,
                                   {"CONFORMANCE_ANSWERS": str(answers)})
            self.assertEqual(run.returncode, 0,
                             f"with shim: {shim}\n{run.stdout[-6000:]}\n{run.stderr[-2000:]}")
            results, codes = {}, {}
            for suite in json.loads(report.read_text())["testsuites"]:
                for test in suite["testsuite"]:
                    results[f"{suite['name']}.{test['name']}"] = test["result"]
            for line in answers.read_text().splitlines():
                test, function, code = line.split(" ")
                codes.setdefault(test, set()).add((function, int(code)))
            return results, codes

    def test_the_suite_gets_the_same_results_under_the_shim(self):
        plain_results, plain_codes = self.suite(False)
        shim_results, shim_codes = self.suite(True)
        self.assertEqual(plain_results, shim_results)
        self.assertGreater(len(plain_results), 100)
        self.assertEqual(plain_codes, shim_codes)
        errors = {answer for answers in plain_codes.values() for answer in answers if answer[1] != 0}
        self.assertGreater(len(errors), 50, "the suite makes calls fail, too")
        print(f"{len(plain_results)} tests, {sum(map(len, plain_codes.values()))} answers, {len(errors)} kinds of errors: the same",
              file=sys.stderr)

    def test_stress_prints_the_same_line_under_the_shim(self):
        lines = []
        for shim in (False, True):
            run = self.run_program(PROGRAMS.stress, STRESS, shim)
            self.assertEqual(run.returncode, 0,
                             f"with shim: {shim}\n{run.stdout[-3000:]}\n{run.stderr[-2000:]}")
            lines.append(json.loads(run.stdout.strip().split("\n")[-1]))
        self.assertEqual(lines[0], lines[1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("--shim", "--conformance", "--stress"):
        parser.add_argument(option, required=True)
    PROGRAMS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
