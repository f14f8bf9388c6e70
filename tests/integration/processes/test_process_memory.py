# SPDX-License-Identifier: Apache-2.0
"""A program goes on at the target before its host memory is there. It checks each MiB of it again and again. Needs
root and a CRIU that works."""
import re
import sys
import unittest

from adopting import needs_criu
from cluster import ClusterTest
from fault_points import Point

MIB = 256
# Each MiB differs. Memory is written, too, and threads come and go, whose stacks are discarded.
PROGRAM = f"""
import ctypes, hashlib, os, threading
cuda = ctypes.CDLL("libcuda.so.1")
def check(result):
    if result:
        raise SystemExit(f"CUDA error {{result}}")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
check(cuda.cuInit(0))
check(cuda.cuDeviceGet(ctypes.byref(device), 0))
check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device))
check(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(16 << 20)))
MIB = 1 << 20
data = bytearray({MIB} * MIB)
block = os.urandom(MIB)
for at in range(0, len(data), MIB):
    data[at:at + MIB] = block
    data[at:at + 8] = at.to_bytes(8, "little")
step = 0
while True:
    step += 1
    word, back = ctypes.c_uint64(step), ctypes.c_uint64()
    check(cuda.cuMemcpyHtoD_v2(memory, ctypes.byref(word), ctypes.c_size_t(8)))
    check(cuda.cuMemcpyDtoH_v2(ctypes.byref(back), memory, ctypes.c_size_t(8)))
    at = step * 7 * MIB % len(data)
    if back.value != step or int.from_bytes(data[at:at + 8], "little") % MIB != 0 or data[at + 8:at + MIB] != block[8:]:
        raise SystemExit(f"step {{step}}: memory is not what it was")
    data[at:at + 8] = (at + step * len(data)).to_bytes(8, "little")
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    print("step", step, flush=True)
"""


class ProcessMemory(ClusterTest):
    @classmethod
    def setUpClass(cls):
        needs_criu()

    def start(self):
        program = self.cluster.home / "memory.py"
        program.write_text(PROGRAM)
        self.cluster.start("job", sys.executable, program, way=())
        self.cluster.wait_for_line("job", r"^step 5\b")

    def check_steps(self, more):
        """All of the memory is read once in `more` steps."""
        steps = len(re.findall(r"^step", self.cluster.log("job"), re.M))
        self.cluster.wait_for_line("job", rf"^step {steps + more}\b")
        self.assert_steps_in_order(self.cluster.log("job"))

    def test_it_moves_there_and_back_at_once(self):
        """The second move waits for the memory of the first one."""
        self.start()
        for node in ("node-b", "node-a"):
            report = self.cluster.migrate("job", node)
            self.assertEqual((report["result"], report["verified"]), ("done", True), report)
            log = (self.cluster.home / "nodes" / node / "agent.log").read_text()
            (lazy,) = re.findall(r"process restored: .* lazy_bytes (\d+)", log)
            self.assertGreater(int(lazy), MIB * 9 // 10 << 20)
        self.check_steps(2 * MIB)

    def test_it_goes_on_at_its_source_if_what_brings_its_memory_is_killed(self):
        self.start()
        self.cluster.arm("lazy_pages", Point.MEMORY_FOLLOWS)
        result = self.cluster.run("migrate", "job", "--to", "node-b")
        self.assertTrue(self.cluster.fired("lazy_pages", Point.MEMORY_FOLLOWS))
        self.assertIn(result.returncode, (1, 3), result)
        self.assertEqual(self.cluster.job("job")["node"], "node-a")
        self.check_steps(2 * MIB)


if __name__ == "__main__":
    unittest.main()
