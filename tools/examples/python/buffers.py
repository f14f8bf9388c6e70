# SPDX-License-Identifier: Apache-2.0
"""Named device memory without torch. `gpumigrate run --cooperative -- python3 buffers.py` starts it.

Each step writes a piece of device memory. The last line is a JSON object with the digest of all of it, which is the same
if the job was moved."""
import argparse
import ctypes
import hashlib
import json
import time

import gpumigrate

BYTES, PIECE = 32 << 20, 1 << 14
cuda = ctypes.CDLL("libcuda.so.1")


def check(code):
    if code != 0:
        raise RuntimeError(f"the driver returned {code}")


def make_context():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    check(cuda.cuInit(0))
    check(cuda.cuDeviceGet(ctypes.byref(device), 0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(cuda.cuCtxSetCurrent(context))


def write(pointer, data):
    check(cuda.cuMemcpyHtoD_v2(ctypes.c_uint64(pointer), bytes(data), ctypes.c_size_t(len(data))))


def read(pointer, nbytes):
    found = ctypes.create_string_buffer(nbytes)
    check(cuda.cuMemcpyDtoH_v2(found, ctypes.c_uint64(pointer), ctypes.c_size_t(nbytes)))
    return found.raw


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--step-ms", type=float, default=2)
    options = parser.parse_args()
    make_context()
    job = gpumigrate.attach()
    memory = job.alloc(BYTES)
    job.buffer("memory", memory)
    if not job.standby:
        write(memory.pointer, bytes(BYTES))
    for step in job.steps(range(1, options.steps + 1)):
        at = step * 7919 * PIECE % BYTES
        before = read(memory.pointer + at, PIECE)
        write(memory.pointer + at, hashlib.shake_128(before + str(step).encode()).digest(PIECE))
        print(f"step {step}", flush=True)
        time.sleep(options.step_ms / 1000)
    print(json.dumps({"digest": hashlib.sha256(read(memory.pointer, BYTES)).hexdigest()}), flush=True)


if __name__ == "__main__":
    main()
