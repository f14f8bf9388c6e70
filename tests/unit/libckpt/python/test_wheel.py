# SPDX-License-Identifier: Apache-2.0
"""The wheel in a virtual environment of its own, installed without a network; GPUMIGRATE_BUILD names the build."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[4]
PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
NO_NETWORK = ("unshare", "--user", "--map-root-user", "--net")
# A program that uses the package's own libckpt and allocator. It calls the allocator as torch does.
USE = """
import ctypes, gpumigrate, importlib.metadata, os, pathlib
from gpumigrate import _library, _memory
from gpumigrate.integrations import accelerate, huggingface, lightning
folder = pathlib.Path(gpumigrate.__file__).parent
assert "site-packages" in folder.parts and (folder / "py.typed").exists()
assert importlib.metadata.version("gpumigrate") == gpumigrate.__version__
assert _library.candidates()[0] == str(folder / "libckpt.so.1")
session = _library.Session()
asked = []
session.library = type("Calls", (), {})()
def alloc(handle, nbytes, pointer):
    asked.append(nbytes)
    pointer[0] = 4096
    return 0 if nbytes < 100 else -3
functions = (ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_ulonglong))(alloc),
             ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_ulonglong)(lambda handle, pointer: asked.append(-pointer)))
session.library.ckpt_alloc, session.library.ckpt_free = functions
hooks = _memory.Hooks(session)
torch = ctypes.CDLL(hooks.path)
torch.gpumigrate_alloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
torch.gpumigrate_alloc.restype = ctypes.c_void_p
torch.gpumigrate_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
torch.gpumigrate_free.restype = None
assert torch.gpumigrate_alloc(64, 0, None) == 4096 and torch.gpumigrate_alloc(1000, 0, None) is None
torch.gpumigrate_free(4096, 64, 0, None)
hooks.end()
torch.gpumigrate_free(4096, 64, 0, None)
assert torch.gpumigrate_alloc(64, 0, None) is None
print(asked)
"""


def run(home, *command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          env={"PATH": os.environ["PATH"], "HOME": home})
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


class Wheel(unittest.TestCase):
    def test_wheel_is_installed_without_a_network_and_works(self):
        allowed = subprocess.run([*NO_NETWORK, "true"], capture_output=True).returncode == 0
        prefix = NO_NETWORK if allowed else ()
        with tempfile.TemporaryDirectory(prefix="gm-wheel-") as folder:
            wheel = run(folder, *prefix, ROOT / "tools/wheel", "--build", os.environ["GPUMIGRATE_BUILD"], folder).strip()
            version = (ROOT / "VERSION").read_text().strip()
            self.assertEqual(pathlib.Path(wheel).name, f"gpumigrate-{version}-py3-none-linux_x86_64.whl")
            run(folder, *prefix, PYTHON, "-m", "venv", f"{folder}/venv")
            run(folder, *prefix, f"{folder}/venv/bin/pip", "install", "--no-index", wheel)
            self.assertEqual(run(folder, f"{folder}/venv/bin/python", "-I", "-c", USE), "[64, 1000, -4096]\n")

    def test_debian_package_contains_the_files_of_the_wheel(self):
        with tempfile.TemporaryDirectory(prefix="gm-deb-") as folder:
            deb = run(folder, ROOT / "tools/wheel", "--build", os.environ["GPUMIGRATE_BUILD"], "--deb", folder).strip()
            version = (ROOT / "VERSION").read_text().strip()
            self.assertRegex(pathlib.Path(deb).name, rf"^python3-gpumigrate_{version}_\w+\.deb$")
            self.assertRegex(run(folder, "dpkg-deb", "--field", deb, "Depends"), r"^python3 \(>= 3\.9\), libc6 \(>= 2\.\d+\)$")
            run(folder, "dpkg-deb", "-x", deb, f"{folder}/root")
            installed = f"{folder}/root/usr/lib/python3/dist-packages"
            use = f"import sys; sys.path.insert(0, {installed!r})" + USE.replace("site-packages", "dist-packages")
            self.assertEqual(run(folder, PYTHON, "-I", "-B", "-c", use), "[64, 1000, -4096]\n")


if __name__ == "__main__":
    unittest.main()
