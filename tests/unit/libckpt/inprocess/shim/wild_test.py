# SPDX-License-Identifier: Apache-2.0
"""However a program comes by the driver, it comes by the shim; where it cannot (a static program, secure
execution, a namespace of the loader's own) it runs as without one."""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

OPTIONS = None
QUOTA = str(4 << 20)  # bytes; less than the programs request
# Each process reports the message once.
EXCEEDED = (r"\A(gpumigrate: out of memory: the quota \(run --gpu-memory\) is \S+ MiB, \S+ MiB are used, "
            r"16\.0 MiB more were requested\n)+\Z")

CTYPES = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
print("init", driver.cuInit(0), "retain", driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "set",
      driver.cuCtxSetCurrent(context), "allocate", driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(16 << 20)))
"""


def run(command, shim, **more):
    environment = dict(os.environ, GPUMIGRATE_GPU_MEMORY=QUOTA, GPUMIGRATE_REAL_CUDA=OPTIONS.driver) | more
    if shim:
        environment["LD_PRELOAD"] = OPTIONS.shim
    done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True,
                          timeout=60)
    return done.returncode, done.stdout, done.stderr


class Wild(unittest.TestCase):
    maxDiff = None

    def assert_passes_the_shim(self, command):
        status, text, errors = run(command, shim=False)
        self.assertEqual((status, errors), (0, ""), text)
        self.assertIn("allocate 0", text)
        status, under, errors = run(command, shim=True)
        self.assertEqual(status, 0, under)
        self.assertRegex(errors, EXCEEDED)
        self.assertEqual(under, text.replace("allocate 0", "allocate 2"))

    def test_calls_pass_the_shim_if_the_driver_is_opened_by_name(self):
        self.assert_passes_the_shim([OPTIONS.wild, "name"])

    def test_calls_pass_the_shim_if_the_driver_is_opened_by_its_path(self):
        self.assert_passes_the_shim([OPTIONS.wild, "path", OPTIONS.driver])

    def test_calls_pass_the_shim_if_a_deepbind_library_opens_the_driver(self):
        self.assert_passes_the_shim([OPTIONS.wild, "deepbind", OPTIONS.plugin])

    def test_calls_pass_the_shim_before_and_after_vfork_and_exec(self):
        self.assert_passes_the_shim([OPTIONS.wild, "vfork"])

    def test_calls_pass_the_shim_if_ctypes_opens_the_driver(self):
        self.assert_passes_the_shim([sys.executable, "-c", CTYPES])

    def test_by_nvidias_static_runtime_library(self):
        """Its calls reach the driver that the shim is told of, which refuses it; without that one there is none."""
        if not OPTIONS.runtime:
            self.skipTest("the example runtime is built with nvcc only")
        command = [OPTIONS.runtime, "--steps", "1"]
        status, text, errors = run(command, shim=False)
        self.assertEqual((status, text), (1, ""), errors)
        self.assertIn("(libcudart) does not run on the software GPU", errors)
        self.assertIn("cudaErrorNotSupported", errors)
        self.assertEqual(run(command, shim=True), (status, text, errors))
        status, text, errors = run(command, shim=True, GPUMIGRATE_REAL_CUDA="/no/driver")
        self.assertEqual((status, text), (1, ""), errors)
        self.assertIn("cudaErrorInsufficientDriver", errors)
        self.assertNotIn("software GPU", errors)

    def test_library_in_its_own_linker_namespace_is_the_driver(self):
        self.assertEqual(run([OPTIONS.wild, "namespace", OPTIONS.driver], shim=False),
                         run([OPTIONS.wild, "namespace", OPTIONS.driver], shim=True))

    def test_a_static_program_is_not_affected(self):
        self.assertEqual(run([OPTIONS.static, "look"], shim=True), (0, "secure 0 shim 0\n", ""))
        self.assertEqual(run([OPTIONS.wild, "look"], shim=True), (0, "secure 0 shim 1\n", ""))

    def test_secure_execution_runs_without_the_shim(self):
        if os.geteuid() != 0:
            self.skipTest("only root can give a program to another user")
        with tempfile.TemporaryDirectory(dir=pathlib.Path(OPTIONS.wild).parent) as folder:
            os.chmod(folder, 0o755)
            program = pathlib.Path(folder, "other_users")
            shutil.copy(OPTIONS.wild, program)
            os.chown(program, 65534, 65534)
            os.chmod(program, 0o6755)
            status, text, _ = run([program, "look"], shim=True)  # the loader may report that it does not
                                                                 # preload
            if text.startswith("secure 0"):
                self.skipTest("the file system does not know set-user-ID")
            self.assertEqual((status, text), (0, "secure 1 shim 0\n"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("--wild", "--static", "--plugin", "--shim", "--driver"):
        parser.add_argument(option, required=True)
    parser.add_argument("--runtime")
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
