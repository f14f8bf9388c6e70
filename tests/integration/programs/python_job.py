# SPDX-License-Identifier: Apache-2.0
"""A Python program with device memory that knows nothing of gpumigrate: `python_job.py KIND STEPS`.

Each step changes a piece of device memory and asks the helpers of its KIND for a number. Every 50 steps all device
memory is compared with a copy in host memory. The last line is a JSON object; its digest depends on KIND and STEPS
alone."""
import array
import ctypes
import hashlib
import json
import mmap
import multiprocessing
import multiprocessing.shared_memory
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from pace import Pace

BLOCKS, BLOCK_BYTES, PIECE_BYTES = 4, 1 << 20, 1 << 14
COMPARE_EVERY = 50
STEP_S = 0.002
WORKERS = 2
SHARED_BYTES = 1 << 16


class Device:
    """Blocks of memory of the first GPU, through the driver's own interface."""

    def __init__(self, blocks, block_bytes):
        self.block_bytes = block_bytes
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.blocks = [self.allocate() for _ in range(blocks)]
        self.mirror = [bytearray(block_bytes) for _ in range(blocks)]
        for block, mirror in zip(self.blocks, self.mirror):
            self.call("cuMemcpyHtoD_v2", block, bytes(mirror), ctypes.c_size_t(block_bytes))

    def call(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name} returned {code}")

    def allocate(self):
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(self.block_bytes))
        return pointer

    def change(self, step):
        piece = hashlib.shake_128(str(step).encode()).digest(PIECE_BYTES)
        block, at = step % len(self.blocks), (step * 7919 * PIECE_BYTES) % self.block_bytes
        self.mirror[block][at:at + PIECE_BYTES] = piece
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(self.blocks[block].value + at), piece, ctypes.c_size_t(PIECE_BYTES))

    def compare(self):
        for block, mirror in zip(self.blocks, self.mirror):
            found = ctypes.create_string_buffer(self.block_bytes)
            self.call("cuMemcpyDtoH_v2", found, block, ctypes.c_size_t(self.block_bytes))
            if found.raw != bytes(mirror):
                raise RuntimeError("device memory is not what was written")

    def digest(self):
        return hashlib.sha256(b"".join(self.mirror)).hexdigest()


def number_of(step):
    return int.from_bytes(hashlib.sha256(f"work {step}".encode()).digest()[:4], "big")


class Plain:
    def ask(self, step):
        return number_of(step)

    def end(self):
        pass


class Regions(Plain):
    """As many allocations as a large model has tensors."""

    memory = (2000, PIECE_BYTES)


class Memory:
    """So many MiB of host memory (`memory:256`), of which about 1 % changes each second. Each page has the step in which
    it was written last."""

    PAGE = 4096

    def __init__(self):
        self.pages = int(sys.argv[1].partition(":")[2]) * 256
        self.memory = memoryview(mmap.mmap(-1, self.pages * self.PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        block = os.urandom(1 << 20)
        for at in range(0, len(self.memory), len(block)):
            self.memory[at:at + len(block)] = block
        self.words = self.memory.cast("Q")
        self.written = array.array("Q", bytes(8 * self.pages))
        for page in range(self.pages):
            self.words[page * self.PAGE // 8] = 0
        self.each_step = max(1, int(self.pages * 0.01 * STEP_S))
        self.next = 0

    def ask(self, step):
        total = 0
        for _ in range(self.each_step):
            self.next = (self.next + 7919) % self.pages
            at = self.next * self.PAGE // 8
            if self.words[at] != self.written[self.next]:
                raise RuntimeError(f"page {self.next} of host memory is not what it was")
            self.words[at] = self.written[self.next] = step
            total += self.next
        return total

    def end(self):
        for page, step in enumerate(self.written):
            if self.words[page * self.PAGE // 8] != step:
                raise RuntimeError(f"page {page} of host memory is not what it was")


class Threads:
    def __init__(self):
        self.begin, self.done = threading.Barrier(9), threading.Barrier(9)
        self.step, self.found = 0, [0] * 8
        for number in range(8):
            threading.Thread(target=self.work, args=(number,), daemon=True).start()

    def work(self, number):
        while True:
            self.begin.wait()
            self.found[number] = number_of(self.step * 8 + number)
            self.done.wait()

    def ask(self, step):
        self.step = step
        self.begin.wait()
        self.done.wait()
        return sum(self.found)

    def end(self):
        pass


def process_work(tasks, answers, lock, total, memory_name):
    memory = multiprocessing.shared_memory.SharedMemory(name=memory_name)
    while (step := tasks.get()) is not None:
        with lock:
            total.value = (total.value + number_of(step)) % 2**31
            memory.buf[step % SHARED_BYTES] = step % 251
        answers.put(number_of(step))
    memory.close()


class Processes:
    def __init__(self, method):
        context = multiprocessing.get_context(method)
        self.tasks, self.answers, self.lock = context.Queue(), context.Queue(), context.Lock()
        self.total = context.Value("i", 0, lock=False)
        self.memory = multiprocessing.shared_memory.SharedMemory(create=True, size=SHARED_BYTES)
        work = (self.tasks, self.answers, self.lock, self.total, self.memory.name)
        self.workers = [context.Process(target=process_work, args=work) for _ in range(WORKERS)]
        for worker in self.workers:
            worker.start()

    def ask(self, step):
        self.tasks.put(step)
        found = self.answers.get()
        with self.lock:
            if self.memory.buf[step % SHARED_BYTES] != step % 251:
                raise RuntimeError("shared memory is not what the worker wrote")
            return found + self.total.value

    def end(self):
        for _ in self.workers:
            self.tasks.put(None)
        for worker in self.workers:
            worker.join()
        self.memory.close()
        self.memory.unlink()


class Pool:
    def __init__(self):
        self.pool = multiprocessing.get_context("fork").Pool(WORKERS)

    def ask(self, step):
        return sum(self.pool.map(number_of, range(step * 4, step * 4 + 4)))

    def end(self):
        self.pool.close()
        self.pool.join()


class Subprocess:
    program = "import sys\nfor line in sys.stdin: print(int(line) * 3 + 1, flush=True)"

    def __init__(self):
        self.child = subprocess.Popen([sys.executable, "-c", self.program], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
        # The input of this child is closed: no process can write to it any more.
        self.idle = subprocess.Popen(["/bin/sleep", "100000"], stdin=subprocess.PIPE)
        self.idle.stdin.close()
        self.ended = subprocess.Popen(["/bin/true"])

    def ask(self, step):
        if step % 50 == 0:  # until then the child has exited, and its parent has not reaped it
            self.ended.wait()
            self.ended = subprocess.Popen(["/bin/true"])
        print(step, file=self.child.stdin, flush=True)
        return int(self.child.stdout.readline())

    def end(self):
        self.ended.wait()
        self.idle.kill()
        self.idle.wait()
        self.child.stdin.close()
        self.child.wait()


class Descriptors:
    """Closes its standard input, and later has another file under that number."""

    def __init__(self):
        self.null = os.open("/dev/null", os.O_RDONLY)

    def ask(self, step):
        if step % 20 == 1:
            os.close(0)
        elif step % 20 == 0:
            os.dup2(self.null, 0)
        return step

    def end(self):
        os.close(self.null)


class Signals:
    """A handler that runs every 5 ms, and a timer of a thread."""

    def __init__(self):
        self.signals, self.fired = 0, threading.Event()
        signal.signal(signal.SIGALRM, self.count)
        signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)

    def count(self, *_):
        self.signals += 1

    def ask(self, step):
        if step % 100 == 0:
            self.fired.clear()
            seen = self.signals
            threading.Timer(0.01, self.fired.set).start()
            self.fired.wait()
            while self.signals == seen:
                signal.pause()
        return number_of(step)

    def end(self):
        signal.setitimer(signal.ITIMER_REAL, 0)


class Listener:
    """A TCP socket that listens and a bound UDP socket; both are used at the end."""

    def __init__(self):
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.names = self.tcp.getsockname(), self.udp.getsockname()
        print(f"listening at {self.names[0][1]}", flush=True)

    def ask(self, step):
        return number_of(step)

    def end(self):
        if (self.tcp.getsockname(), self.udp.getsockname()) != self.names:
            raise RuntimeError("a socket has another name")
        with socket.create_connection(self.names[0]) as client:
            accepted, _ = self.tcp.accept()
            client.sendall(b"over TCP")
            with accepted:
                if accepted.recv(8) != b"over TCP":
                    raise RuntimeError("nothing came over TCP")
        self.udp.sendto(b"over UDP", self.names[1])
        if self.udp.recv(8) != b"over UDP":
            raise RuntimeError("nothing came over UDP")
        for kept in (self.tcp, self.udp):
            if kept.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT) != 0:
                raise RuntimeError("a port is shared that was not")


def echo(listener):
    """A worker: answers on each connection, in a thread of its own."""
    def answer(connection):
        while word := connection.recv(4):
            connection.sendall(number_of(int.from_bytes(word, "big")).to_bytes(4, "big"))
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


class Connected:
    """Open TCP connections: to itself, over IPv4 and IPv6, and to a worker process. On one of them bytes wait unread
    all the time."""

    WAITING = b"unread" * 1000

    def __init__(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.worker = multiprocessing.get_context("fork").Process(target=echo, args=(listener,), daemon=True)
        self.worker.start()
        self.other = socket.create_connection(listener.getsockname())
        self.ends = [self.to_itself(family, address) for family, address in
                     ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))]
        self.ends[0][1].sendall(self.WAITING)

    @staticmethod
    def to_itself(family, address):
        with socket.create_server((address, 0), family=family) as listener:
            client = socket.create_connection(listener.getsockname()[:2])
            return client, listener.accept()[0]

    def ask(self, step):
        self.other.sendall(step.to_bytes(4, "big"))
        found = int.from_bytes(self.other.recv(4), "big")
        for client, server in self.ends:
            client.sendall(step.to_bytes(4, "big"))
            if int.from_bytes(server.recv(4), "big") != step:
                raise RuntimeError("another word came than was sent")
        return found

    def end(self):
        got = b""
        while len(got) < len(self.WAITING):
            got += self.ends[0][0].recv(65536)
        if got != self.WAITING:
            raise RuntimeError("what waited in a connection is not what was sent")
        self.worker.terminate()
        self.worker.join()


class Outside(Plain):
    """An open TCP connection to a process that is none of the job's, at $GPUMIGRATE_TEST_PEER."""

    def __init__(self):
        host, port = os.environ["GPUMIGRATE_TEST_PEER"].split(":")
        self.peer = socket.create_connection((host, int(port)))

    def end(self):
        self.peer.close()


class Compiled(Plain):
    """A library in the cache of PyTorch's inductor, as it is after torch.compile."""

    def __init__(self):
        self.cache = tempfile.mkdtemp(prefix="torchinductor_", dir="/tmp")
        with open("/proc/self/maps") as maps:
            library = next(line.split()[-1] for line in maps if "/libc.so" in line)
        os.mkdir(f"{self.cache}/ab")
        mathematics = os.path.join(os.path.dirname(library), "libm.so.6")
        self.library = ctypes.CDLL(shutil.copy(mathematics, f"{self.cache}/ab/kernel.so"))
        self.library.sqrt.restype, self.library.sqrt.argtypes = ctypes.c_double, [ctypes.c_double]

    def ask(self, step):
        return int(self.library.sqrt(float(step * step)))

    def end(self):
        shutil.rmtree(self.cache)


class Late(Processes):
    """Workers that are forked when the driver is in use, and a child that only asks for the number of devices."""

    late = True

    def __init__(self):
        super().__init__("fork")
        asks = "import ctypes; c = ctypes.CDLL('libcuda.so.1'); exit(c.cuInit(0))"
        if subprocess.run([sys.executable, "-c", asks], check=False).returncode != 0:
            raise RuntimeError("a child that asks for devices has none")


class Asking(Subprocess):
    """A child that asks the driver for devices, and lives on without a context."""

    program = "import ctypes\nctypes.CDLL('libcuda.so.1').cuInit(0)\n" + Subprocess.program


KINDS = {"plain": Plain, "regions": Regions, "memory": Memory, "compiled": Compiled, "late": Late, "asking": Asking, "listen": Listener, "connected": Connected, "outside": Outside, "threads": Threads, "fork": lambda: Processes("fork"), "spawn": lambda: Processes("spawn"),
         "forkserver": lambda: Processes("forkserver"), "pool": Pool, "subprocess": Subprocess, "descriptors": Descriptors, "signals": Signals}


def main():
    kind, steps = sys.argv[1].partition(":")[0], int(sys.argv[2])
    late = getattr(KINDS[kind], "late", False)
    # Helpers are started before the driver, which usually does not survive a fork.
    helpers = None if late else KINDS[kind]()
    device = Device(*getattr(KINDS[kind], "memory", (BLOCKS, BLOCK_BYTES)))
    helpers = helpers or KINDS[kind]()
    total, pace = 0, Pace(steps, STEP_S)
    for step in range(1, steps + 1):
        device.change(step)
        total = (total * 31 + helpers.ask(step)) % 2**61
        if step % COMPARE_EVERY == 0:
            device.compare()
        print(f"step {step}\n", end="", flush=True)  # one write: threads may print, too
        pace.wait(step)
    device.compare()
    helpers.end()
    print(json.dumps({"digest": f"{device.digest()}-{total}", "steps": steps}), flush=True)


if __name__ == "__main__":
    main()
