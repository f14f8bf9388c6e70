# SPDX-License-Identifier: Apache-2.0
"""A Python program that uses the package gpumigrate, without torch: `package_job.py [OPTIONS]`.

Each step changes device memory (of libckpt, and of the driver), a total in host memory and the generator of random
numbers. The last line is a JSON object; its digest is the same, moved or not."""
import argparse
import ctypes
import hashlib
import json
import os
import random
import time

import gpumigrate
from pace import Pace

BUFFER_BYTES, DRIVER_BYTES, PIECE_BYTES = 8 << 20, 1 << 20, 1 << 12


class Device:
    """The first GPU, through the driver's own interface."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name} returned {code}")

    def allocate(self, nbytes):
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(nbytes))
        return pointer.value

    def write(self, pointer, data):
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(pointer), bytes(data), ctypes.c_size_t(len(data)))

    def read(self, pointer, nbytes):
        found = ctypes.create_string_buffer(nbytes)
        self.call("cuMemcpyDtoH_v2", found, ctypes.c_uint64(pointer), ctypes.c_size_t(nbytes))
        return found.raw


class Array:
    """Device memory as CuPy and others describe it."""

    def __init__(self, pointer, words):
        self.pointer, self.words = pointer, words

    @property
    def __cuda_array_interface__(self):
        return {"shape": (self.words // 16, 16), "typestr": "<u4", "data": (self.pointer, False), "version": 3}


class Shuffled:
    """A loader without a state: each pass has an order of its own."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        order = list(range(self.batches))
        random.shuffle(order)
        return iter(order)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--step-ms", type=float, default=2)
    parser.add_argument("--start-s", type=float, default=0, help="how long its start takes, as large imports would")
    parser.add_argument("--driver-memory", action="store_true", help="names memory of the driver, too")
    parser.add_argument("--start-beside", metavar="FOLDER",
                        help="each but the first instance starts slowly: until the first is in its step 500")
    parser.add_argument("--break-at", type=int, default=0, help="step in which its array gets another shape")
    parser.add_argument("--forget", choices=["buffer", "state"], help="what a standby does not name")
    parser.add_argument("--more", type=int, default=0, metavar="KIB", help="a next version: names one more array and state")
    return parser.parse_args()


class SlowStart:
    """A start that ends when the instance at work comes to a step: no time is involved."""

    STEP = 500

    def __init__(self, folder):
        self.path = folder and os.path.join(folder, "step")
        if folder and not os.path.exists(self.path):
            os.mkfifo(self.path)
        elif folder:
            with open(self.path, "rb") as steps:
                steps.read()

    def at_work(self, step):
        if self.path and step == self.STEP:
            with open(self.path, "wb"):
                pass


def main():
    options = parse()
    random.seed(7)
    time.sleep(options.start_s)
    pace = Pace(options.epochs * options.batches, options.step_ms / 1000)
    slow = SlowStart(options.start_beside)
    device = Device()
    job = gpumigrate.attach()
    movable = job.alloc(BUFFER_BYTES)
    array = Array(movable.pointer, BUFFER_BYTES // 4)
    plain = device.allocate(DRIVER_BYTES)
    if not (job.standby and options.forget == "buffer"):
        job.buffer("weights", array, kind="parameter")
    if options.driver_memory:
        job.buffer("counts", plain, DRIVER_BYTES)
    totals = {"total": 0, "step": 0}
    if not (job.standby and options.forget == "state"):
        job.register("totals", lambda: totals, totals.update)
    if options.more:
        more = job.alloc(options.more << 10)
        job.buffer("more", Array(more.pointer, options.more << 8))
        job.register("version", lambda: {"version": 2}, lambda state: None)
    device.write(plain, bytes(DRIVER_BYTES))
    if not job.standby:
        device.write(movable.pointer, bytes(BUFFER_BYTES))
    job.warmup(lambda: print("warm-up", flush=True))
    job.on_start(lambda: print(f"started, resumed: {job.resumed}", flush=True))
    for epoch in job.epochs(options.epochs):
        for batch in job.steps(Shuffled(options.batches)):
            totals["step"] += 1
            piece = hashlib.shake_128(f"{epoch} {batch} {random.random()}".encode()).digest(PIECE_BYTES)
            at = (totals["step"] * 7919 * PIECE_BYTES) % BUFFER_BYTES
            before = device.read(movable.pointer + at, 8) + device.read(plain + at % DRIVER_BYTES, 8)
            device.write(movable.pointer + at, bytes(a ^ b for a, b in zip(piece, before)) + piece[len(before):])
            if options.driver_memory:
                device.write(plain + at % DRIVER_BYTES, piece)
            totals["total"] = (totals["total"] * 31 + batch + int.from_bytes(before, "big")) % 2**61
            slow.at_work(totals["step"])
            if totals["step"] == options.break_at:
                array.words //= 2
            print(f"step {totals['step']}", flush=totals["step"] % 10 == 0)
            pace.wait(totals["step"])
    memory = device.read(movable.pointer, BUFFER_BYTES) + device.read(plain, DRIVER_BYTES)
    digest = hashlib.sha256(memory + f"{totals} {random.random()}".encode()).hexdigest()
    print(json.dumps({"digest": digest, "steps": totals["step"]}), flush=True)


if __name__ == "__main__":
    main()
