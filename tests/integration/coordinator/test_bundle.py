# SPDX-License-Identifier: Apache-2.0
"""The bundle where nothing is but the C library: gpu-check reports no GPU, and with the software
GPU passes what it can. Its scripts for PyTorch, which need a Python."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ["GPUMIGRATE_BUILD"])
TORCH = subprocess.run([ROOT / "tools" / "torch", "find"], capture_output=True, text=True)
# The libraries that the bundle does not contain, which are the machine's own C library.
C_LIBRARY = ("libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libresolv.so.2",
             "libutil.so.1", "libanl.so.1")
LOADER = pathlib.Path("/lib64/ld-linux-x86-64.so.2")
DEVICES = ("null", "zero", "random", "urandom")
# A script that runs in namespaces of its own; its mounts disappear with the namespaces.
ENTER = """
set -e
mount -t proc proc "$0/proc"
mount --rbind /sys "$0/sys"
mount -t tmpfs tmpfs "$0/dev/shm"
mount -t tmpfs tmpfs "$0/tmp"
for device in null zero random urandom; do mount --bind "/dev/$device" "$0/dev/$device"; done
exec chroot "$0" "$@"
"""
NAMESPACES = ("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child")


def bare_root(folder):
    for name in ("proc", "sys", "dev/shm", "tmp", "lib64", "lib/x86_64-linux-gnu", "results"):
        (folder / name).mkdir(parents=True)
    for device in DEVICES:
        (folder / "dev" / device).touch()
    shutil.copy(LOADER, folder / LOADER.relative_to("/"))
    for library in C_LIBRARY:
        shutil.copy(f"/lib/x86_64-linux-gnu/{library}", folder / "lib/x86_64-linux-gnu")
    return folder


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        allowed = subprocess.run([*NAMESPACES, "mount", "-t", "tmpfs", "tmpfs", "/tmp"], capture_output=True,
                                 text=True)
        if allowed.returncode != 0:
            raise unittest.SkipTest(f"No namespaces for a root of its own here: {allowed.stderr.strip()}")
        cls.folder = tempfile.TemporaryDirectory(prefix="gm-bundle-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.root = bare_root(pathlib.Path(cls.folder.name) / "root")
        made = subprocess.run([ROOT / "tools" / "bundle", "--build", BUILD, cls.root / "gpumigrate"],
                              capture_output=True, text=True)
        if made.returncode != 0:
            raise AssertionError(f"tools/bundle: {made.stderr}")

    def check(self, *options):
        """gpu-check's exit status, its output, and its report (None: it made none)."""
        report = self.root / "results" / "check.json"
        report.unlink(missing_ok=True)
        ended = subprocess.run([*NAMESPACES, "sh", "-c", ENTER, self.root, "/gpumigrate/gpu-check", "--json",
                                "/results/check.json", *options],
                               capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
        output = ended.stdout + ended.stderr
        return ended.returncode, output, json.loads(report.read_text()) if report.exists() else None

    def test_missing_gpu_is_reported(self):
        status, output, _ = self.check()
        self.assertEqual(status, 0, output)
        self.assertIn("No GPU", output)
        self.assertIn("libcuda.so.1", output)

    def test_a_job_moves_live_on_the_software_gpu(self):
        status, output, report = self.check("--software", "--quick", "--only", "driver,move_hotset,move_charlm")
        self.assertEqual(status, 0, output)
        self.assertEqual([(item["name"], item["status"]) for item in report["items"]],
                         [(name, "passed") for name in ("driver", "move_hotset", "move_charlm")], output)

    @unittest.skipUnless((BUILD / "bin/examples/runtime").exists(), "the example runtime is built with nvcc only")
    def test_the_example_of_the_runtime_api_starts_from_the_bundle(self):
        status, output, report = self.check("--software", "--quick", "--only", "move_runtime")
        self.assertEqual(status, 0, output)
        [item] = [item for item in report["items"] if item["name"] == "move_runtime"]
        self.assertIn("cudaErrorNotSupported", item["figures"]["stderr"], output)

    def run_script(self, name, *options):
        """A script of share/torch outside of the bare root, on the software GPU, in a folder as deep as gpu-check's: its
        report."""
        work = tempfile.TemporaryDirectory(prefix="gc-", dir="/tmp")
        self.addCleanup(work.cleanup)
        item = pathlib.Path(work.name) / "pytorch_package_compile"
        item.mkdir()
        bundle, report = self.root / "gpumigrate", self.root / "results" / "script.json"
        gpu = {"LD_LIBRARY_PATH": str(bundle / "lib/cudasim"), "CUDASIM_DIR": str(self.root / "results/gpu"),
               "CUDASIM_DEVICES": "1", "CUDASIM_MEMORY": "2GiB", "GPUMIGRATE_SOFTWARE_GPU": "1", "TMPDIR": str(item)}
        ended = subprocess.run([sys.executable, bundle / "share/torch" / name, "--json", report, *options],
                               capture_output=True, text=True, env=os.environ | gpu, timeout=280)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        return json.loads(report.read_text())

    @unittest.skipIf(TORCH.returncode != 0, TORCH.stderr.strip())
    def test_training_that_uses_the_python_package_moves(self):
        """Without a GPU for torch: all of it is host state."""
        report = self.run_script("moves.py", "--python", TORCH.stdout.strip(), "--small", "package")["package"]
        self.assertEqual([move["result"] for move in report["moves"]], ["done", "done"], report)

    def test_the_bundle_contains_the_wheel_of_the_python_package(self):
        self.assertEqual(len(list((self.root / "gpumigrate/python").glob("gpumigrate-*.whl"))), 1)

    def test_the_bundle_contains_licenses_of_statically_linked_libraries(self):
        for package in ("libprotobuf-dev", "libboost-url1.81-dev", "libzstd-dev"):
            self.assertTrue((self.root / "gpumigrate/licenses" / package).is_file(), package)
