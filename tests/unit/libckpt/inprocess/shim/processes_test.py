# SPDX-License-Identifier: Apache-2.0
"""A program linked with -lcuda in the lives that a process can have, with and without libckpt_shim.so: what
it sees is the same. Over the software driver, and without any driver at all."""
import argparse
import os
import subprocess
import sys
import unittest

OPTIONS = None


def live(life, shim, **more):
    environment = dict(os.environ, **more)
    if shim:
        environment["LD_PRELOAD"] = OPTIONS.shim
    done = subprocess.run([OPTIONS.program, life], env=environment, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


class Processes(unittest.TestCase):
    def assert_same(self, life):
        alone = live(life, shim=False)
        self.assertEqual(0, alone[0], alone)
        self.assertEqual(alone, live(life, shim=True))
        return alone[1]

    def test_driver_calls_have_the_same_results_under_the_shim(self):
        self.assertIn("word 12345678", self.assert_same("call"))

    def test_a_forked_child_sees_the_answers_of_the_driver(self):
        text = self.assert_same("fork")
        self.assertEqual(2, text.count("parent count 0"))
        self.assertIn("child ended 0", text)

    def test_exec_initializes_the_shim_again(self):
        text = self.assert_same("exec")
        self.assertIn("before count 0", text)
        self.assertIn("self count 0", text)

    def test_rtld_next_keeps_its_meaning_under_the_shim(self):
        self.assertIn("getpid 1", live("next", shim=True)[1])

    def test_a_program_without_cuda_calls_is_not_affected(self):
        self.assert_same("idle")  # the status also shows that no driver was mapped under the shim

    def test_without_a_driver_there_is_no_device(self):
        status, text, errors = live("call", shim=True, LD_LIBRARY_PATH="",
                                    GPUMIGRATE_REAL_CUDA="/nonexistent/libcuda.so.1")
        self.assertEqual((0, ""), (status, errors))
        self.assertIn("init 100\n", text)
        self.assertIn("state of nobody 100\n", text)


def main():
    global OPTIONS
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--shim", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
