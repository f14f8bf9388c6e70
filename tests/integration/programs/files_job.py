# SPDX-License-Identifier: Apache-2.0
"""files_job.py KIND [FILE]: a program that has something of the kernel that a move must bring along, and uses it in each
step. It ends with an error where something is not what it was."""
import ctypes
import fcntl
import os
import select
import signal
import struct
import sys
import threading
import time

KIND, FILE = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
libc = ctypes.CDLL(None)
libc.syscall.restype = ctypes.c_long
CREATE, SETTIME = 283, 286
IOPRIO_SET, IOPRIO_GET = 251, 252
SET_SLACK, GET_SLACK = 29, 30
SET_SCHEDULING, GET_SCHEDULING = 314, 315
ABSOLUTE = 1


def wrong(what):
    print("WRONG:", what, flush=True)
    os._exit(3)


def timer(flags, first, every, clock=time.CLOCK_MONOTONIC):
    made = libc.syscall(CREATE, int(clock), 0)
    spec = struct.pack("qqqq", 0, int(every * 1e9), int(first), int(first % 1 * 1e9))
    if libc.syscall(SETTIME, made, flags, spec, 0) != 0:
        raise SystemExit("timerfd_settime")
    return made


def expires(made, what):
    if not select.select([made], [], [], 20)[0]:
        wrong(f"{what} stands still")
    os.read(made, 8)


def timers():
    """Periodic ones, which have mostly expired when they are read; ones that were never read; and a signal's."""
    periodic = timer(0, 0.02, 0.02)
    absolute = timer(ABSOLUTE, time.clock_gettime(time.CLOCK_REALTIME) + 0.02, 0.02, time.CLOCK_REALTIME)
    unread, disarmed = timer(0, 0.01, 0), timer(ABSOLUTE, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    counter = os.eventfd(7)
    while True:
        yield
        expires(periodic, "a periodic timer")
        expires(absolute, "a timer of an absolute time")
        if signal.sigtimedwait([signal.SIGALRM], 20) is None:
            wrong("an interval timer stands still")
        if not select.select([unread], [], [], 20)[0]:
            wrong("a timer that has expired is not readable")
        if select.select([disarmed], [], [], 0)[0]:
            wrong("a disarmed timer has expired")
        if os.eventfd_read(counter) != 7:
            wrong("an event counter")
        os.eventfd_write(counter, 7)


def scheduling():
    """The kernel's struct sched_attr; its sixth field is the time slice."""
    attributes = ctypes.create_string_buffer(48)
    if libc.syscall(GET_SCHEDULING, 0, attributes, 48, 0):
        raise SystemExit("sched_getattr")
    return struct.unpack("IIQiIQQQ", attributes.raw)


def set_slice(nanoseconds):
    """Kernels that have no time slices for threads of the usual policy ignore it."""
    _, policy, flags, nice, *_ = scheduling()
    libc.syscall(SET_SCHEDULING, 0, struct.pack("IIQiIQQQ", 48, policy, flags, nice, 0, nanoseconds, 0, 0), 0)


def session_nice(value=None):
    try:
        with open("/proc/self/autogroup", "r" if value is None else "w") as file:
            return file.read().split()[-1:] if value is None else file.write(str(value))
    except OSError:
        return "not known to this kernel"


def settings():
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {processors[-1]})
    os.nice(5)
    libc.prctl(SET_SLACK, 123456, 0, 0, 0)
    libc.syscall(IOPRIO_SET, 1, 0, (2 << 13) | 6)
    set_slice(7_000_000)
    session_nice(7)
    with open("/proc/self/coredump_filter", "w") as file:
        file.write("0x7")
    ids = []

    def work():
        ids.append(threading.get_native_id())
        os.sched_setaffinity(ids[0], {processors[0]})
        threading.Event().wait()
    threading.Thread(target=work, daemon=True).start()
    while not ids:
        time.sleep(0.001)

    def look():
        with open("/proc/self/coredump_filter") as file:
            return {"processors": os.sched_getaffinity(0), "a thread's": os.sched_getaffinity(ids[0]), "nice": os.nice(0),
                    "I/O priority": libc.syscall(IOPRIO_GET, 1, 0), "timer slack": libc.prctl(GET_SLACK, 0, 0, 0, 0),
                    "scheduling": scheduling(), "the session's nice value": session_nice(),
                    "core dump filter": file.read()}
    while os.sched_getaffinity(ids[0]) != {processors[0]}:
        time.sleep(0.001)
    before = look()
    while True:
        yield
        if (now := look()) != before:
            wrong(f"{before} is {now} now")


def own_proc():
    stat, folder = os.open("/proc/self/stat", os.O_RDONLY), os.open("/proc/self", os.O_RDONLY)
    while True:
        yield
        with open("/proc/self/stat") as file:
            own = file.read().split()[0]
        kept = os.pread(stat, 4096, 0).decode().split()[0]
        if kept != own:
            wrong(f"process {own} reads the numbers of process {kept}")
        os.stat("statm", dir_fd=folder)


def other_proc():
    kept = os.open(f"/proc/{os.getppid() or 1}/statm", os.O_RDONLY)
    while True:
        yield
        os.pread(kept, 100, 0)


def grows(mode):
    with open(FILE, mode) as file:
        while True:
            yield
            if mode == "r":
                file.read()
            else:
                file.write("own\n")
                file.flush()


def locked(take):
    with open(FILE, "w") as file:
        take(file, fcntl.LOCK_EX)
        while True:
            yield


def temporary():
    """A name that is there for a moment, again and again."""
    while True:
        name = f"{FILE}.{time.monotonic_ns()}"
        with open(name, "w"):
            yield
            os.rename(name, FILE)


def journal():
    """A file beside a database: there for a tenth of a second, again and again, and gone for as long."""
    while True:
        with open(FILE, "w"):
            time.sleep(0.1)
            os.unlink(FILE)
        time.sleep(0.1)
        yield


KINDS = {"timers": timers, "settings": settings, "own-proc": own_proc, "other-proc": other_proc, "temporary": temporary,
         "journal": journal,
         "grows-r": lambda: grows("r"), "grows-w": lambda: grows("w"), "grows-a+": lambda: grows("a+"),
         "flock": lambda: locked(fcntl.flock), "lockf": lambda: locked(fcntl.lockf)}
cuda = ctypes.CDLL("libcuda.so.1")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
for result in (cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0), cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device),
               cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 20))):
    if result:
        raise SystemExit(f"CUDA error {result}")
for number, _ in enumerate(KINDS[KIND](), 1):
    word = ctypes.c_uint64(number)
    if cuda.cuMemcpyHtoD_v2(memory, ctypes.byref(word), ctypes.c_size_t(8)):
        raise SystemExit("CUDA error")
    print("step", number, flush=True)
    time.sleep(0.01)
