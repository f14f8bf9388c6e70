# SPDX-License-Identifier: Apache-2.0
"""memory_job.py MIB [registered]: has so many MiB of host memory, each different. Each step reads one and writes into
it, and goes through the GPU. It shares memory without a file's name, as NVIDIA's driver does. Threads come and go,
whose stacks are discarded; so does a mapping, and a new one takes its place. `registered`: the driver may write some
of its memory. Ends with an error if anything is not what it was."""
import ctypes
import mmap
import os
import sys
import threading

cuda = ctypes.CDLL("libcuda.so.1")
def check(result):
    if result:
        raise SystemExit(f"CUDA error {result}")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
check(cuda.cuInit(0))
check(cuda.cuDeviceGet(ctypes.byref(device), 0))
check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device))
check(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(16 << 20)))
MIB = 1 << 20
shared = [mmap.mmap(-1, MIB) for _ in range(3)]
open_only = os.memfd_create("open")
os.write(open_only, b"open")
for number, part in enumerate(shared[1:]):
    part[:8] = number.to_bytes(8, "little")
data = bytearray(int(sys.argv[1]) * MIB)
block = os.urandom(MIB)
for at in range(0, len(data), MIB):
    data[at:at + MIB] = block
    data[at:at + 8] = at.to_bytes(8, "little")
if "registered" in sys.argv[2:]:
    pinned = mmap.mmap(-1, MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    check(cuda.cuMemHostRegister_v2(ctypes.byref(ctypes.c_char.from_buffer(pinned)), ctypes.c_size_t(MIB), 0))
CHANGES_EVERY, CHANGING = 16, 4 * MIB
changing = mmap.mmap(-1, CHANGING, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
step = 0
while True:
    step += 1
    word, back = ctypes.c_uint64(step), ctypes.c_uint64()
    check(cuda.cuMemcpyHtoD_v2(memory, ctypes.byref(word), ctypes.c_size_t(8)))
    check(cuda.cuMemcpyDtoH_v2(ctypes.byref(back), memory, ctypes.c_size_t(8)))
    at = step * 7 * MIB % len(data)
    if back.value != step or int.from_bytes(data[at:at + 8], "little") % MIB != 0 or data[at + 8:at + MIB] != block[8:]:
        raise SystemExit(f"step {step}: memory is not what it was")
    if any(int.from_bytes(part[:8], "little") != number for number, part in enumerate(shared[1:])) or \
            os.pread(open_only, 9, 0) != b"open":
        raise SystemExit(f"step {step}: shared memory is not what it was")
    data[at:at + 8] = (at + step * len(data)).to_bytes(8, "little")
    if step % CHANGES_EVERY == 0:
        changing.close()
        changing = mmap.mmap(-1, CHANGING, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        changing[:] = step.to_bytes(8, "little") * (CHANGING // 8)
    elif step > CHANGES_EVERY and changing[-8:] != (step // CHANGES_EVERY * CHANGES_EVERY).to_bytes(8, "little"):
        raise SystemExit(f"step {step}: a new mapping is not what it was")
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    print("step", step, flush=True)
