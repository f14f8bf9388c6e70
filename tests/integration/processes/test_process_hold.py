# SPDX-License-Identifier: Apache-2.0
"""A restored process whose context cannot be restored goes back, and none of its own code has run at the
target: no line of its other threads and processes comes twice. Needs root and CRIU."""
import sys

from crashing_processes import CrashesWithCriu
from fault_points import Point
from waiting import eventually

# One thread uses the GPU; another thread and a child only count.
PROGRAM = """
import ctypes, os, sys, threading, time
def count(name):
    file, number = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND), 0
    while True:
        number += 1
        os.write(file, f"{name} {number}\\n".encode())
        time.sleep(0.0005)
if os.fork() == 0:
    count("child")
cuda = ctypes.CDLL("libcuda.so.1")
def check(result):
    if result:
        raise SystemExit(f"CUDA error {result}")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
check(cuda.cuInit(0))
check(cuda.cuDeviceGet(ctypes.byref(device), 0))
check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device))
check(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(16 << 20)))
threading.Thread(target=count, args=("thread",), daemon=True).start()
step = 0
while True:
    step += 1
    word, back = ctypes.c_uint64(step), ctypes.c_uint64()
    check(cuda.cuMemcpyHtoD_v2(memory, ctypes.byref(word), ctypes.c_size_t(8)))
    check(cuda.cuMemcpyDtoH_v2(ctypes.byref(back), memory, ctypes.c_size_t(8)))
    if back.value != step:
        raise SystemExit(f"step {step}: memory is not what it was")
    print("step", step, flush=True)
    time.sleep(0.002)
"""
RESTORES = [(f"context.{order}", number) for order in ("restore", "unlock")
            for number in (Point.CONTEXT_ORDERED, Point.CONTEXT_PERFORMED)]


class HeldProcess(CrashesWithCriu):
    def start_counting(self):
        program = self.cluster.home / "counting.py"
        program.write_text(PROGRAM)
        self.counts = self.cluster.home / "counts"
        self.counts.touch()
        self.cluster.call("run", "--detach", "--name", "job", "--node", "node-a", "--", sys.executable,
                          program, self.counts)
        self.cluster.wait_for_line("job", r"^step 5\b")
        plan = self.cluster.run("migrate", "job", "--to", "node-b", "--dry-run")
        if plan.returncode != 0 and "host processes" in plan.stdout + plan.stderr:
            self.skipTest((plan.stdout + plan.stderr).strip())

    def counted(self, name):
        """Without a line that is being written."""
        lines = self.counts.read_text().split("\n")[:-1]
        return [int(line.split()[1]) for line in lines if line.startswith(name)]

    def wait_until_counting(self):
        for name in ("thread", "child"):
            before = len(self.counted(name))
            eventually(lambda name=name, before=before: len(self.counted(name)) > before + 20,
                       f"the {name} counts on")

    def check_counts(self):
        for name in ("thread", "child"):
            numbers = self.counted(name)
            self.assertEqual(numbers, list(range(1, len(numbers) + 1)), f"the {name} ran twice")

    def test_program_does_not_run_before_its_context_is_restored(self):
        self.start_counting()
        for role, number in RESTORES:
            with self.subTest(role=role, number=number):
                self.cluster.arm(role, number)
                moved = self.cluster.popen("migrate", "job", "--to", "node-b", "-o", "json", "--timeout", "60s")
                self.wait_until_fired(role, number, moved)
                output, errors = moved.communicate(timeout=120)
                self.assertEqual(moved.returncode, 1, output + errors)
                self.wait_until_counting()
                self.check_counts()
        self.assertEqual(self.cluster.migrate("job", "node-b")["result"], "done")
        self.wait_until_counting()
        self.check_counts()
        self.assert_steps_in_order(self.cluster.log("job"))
        self.cluster.call("stop", "job", "--grace", "0s")

