# SPDX-License-Identifier: Apache-2.0
"""An unmodified Python program with gigabytes of host memory moves between two nodes, or is refused before
its pause: no limit of its own for work that grows with the bytes. Long: test_process_moves.py is the short
edition. Needs root, a CRIU that works and four times the memory on this machine."""
import json
import os
import re
import sys
import unittest

from cluster import ClusterTest

GIB = int(os.environ.get("GPUMIGRATE_LARGE_PROCESS_GIB", "3"))
LIMIT_S = 900
# Each MiB differs, each step reads one and goes through the GPU.
PROGRAM = f"""
import ctypes, os
cuda = ctypes.CDLL("libcuda.so.1")
def check(result):
    if result:
        raise SystemExit(f"CUDA error {{result}}")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
check(cuda.cuInit(0))
check(cuda.cuDeviceGet(ctypes.byref(device), 0))
check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device))
check(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(16 << 20)))
PAGE, MIB = 4096, 1 << 20
data = bytearray({GIB} << 30)
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
    if back.value != step or data[at:at + 8] != at.to_bytes(8, "little") or data[at + 8:at + MIB] != block[8:]:
        raise SystemExit(f"step {{step}}: memory is not what it was")
    print("step", step, flush=True)
"""


class LargeProcess(ClusterTest):
    def move(self, node):
        """Its report; none if it was refused."""
        result = self.cluster.run("migrate", "job", "--to", node, "-o", "json", limit=LIMIT_S)
        output = result.stdout + result.stderr
        if result.returncode != 0:
            self.assertRegex(output, r"memory", result)
            self.assertNotIn("barrier", json.dumps(self.cluster.json("describe", "job")), output)
            return None
        return json.loads(result.stdout)

    def test_python_program_of_gigabytes_moves_there_and_back_or_is_refused_before_its_pause(self):
        program = self.cluster.home / "large.py"
        program.write_text(PROGRAM)
        self.cluster.call("run", "--detach", "--name", "job", "--node", "node-a", "--", sys.executable,
                          program)
        self.cluster.wait_for_line("job", r"^step 5\b")
        plan = self.cluster.run("migrate", "job", "--to", "node-b", "--dry-run")
        if plan.returncode != 0 and "host processes" in plan.stdout + plan.stderr:
            self.skipTest((plan.stdout + plan.stderr).strip())
        for node in ("node-b", "node-a"):
            report = self.move(node)
            if report is None:
                continue
            self.assertEqual(report["result"], "done", report)
            self.assertTrue(report["verified"], report)
            self.assertGreater(report["wire_bytes"], GIB << 30, report)
            print(f"{GIB} GiB to {node}: estimate {report['estimate_ms']:.0f} ms, downtime {report['downtime_ms']:.0f} ms", flush=True)
            self.assertEqual(self.cluster.job("job")["node"], node)
            steps = len(re.findall(r"^step", self.cluster.log("job"), re.M))
            self.cluster.wait_for_line("job", rf"^step {steps + 100}\b")
        self.assert_steps_in_order(self.cluster.log("job"))
        self.cluster.call("stop", "job", "--grace", "0s")
