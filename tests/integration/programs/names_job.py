# SPDX-License-Identifier: Apache-2.0
"""A program whose state has names only: `names_job.py KIND STEPS`. It holds nothing open between two steps, and finds
by name what the step before has left. Otherwise it is like python_job.py."""
import ctypes
import json
import os
import pathlib
import subprocess
import sys

from pace import Pace
from python_job import BLOCK_BYTES, BLOCKS, COMPARE_EVERY, STEP_S, Device, number_of

LIBC = ctypes.CDLL(None, use_errno=True)
IPC_CREAT, IPC_NOWAIT, IPC_RMID, SETVAL, GETVAL = 0o1000, 0o4000, 0, 16, 12
LIBC.shmat.restype = ctypes.c_void_p


def checked(result):
    if result is None or result == -1 or result == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


class Itself:
    """Finds itself and its child by number, as psutil does."""

    def __init__(self):
        self.child = subprocess.Popen(["sleep", "infinity"])

    @staticmethod
    def started(who):
        return pathlib.Path(f"/proc/{who}/stat").read_text().rpartition(")")[2].split()[19]

    def ask(self, step):
        own = os.getpid()
        if self.started(own) != self.started("self"):
            raise RuntimeError(f"/proc/{own} is another process")
        children = pathlib.Path(f"/proc/{own}/task/{own}/children").read_text().split()
        if str(self.child.pid) not in children:
            raise RuntimeError(f"child {self.child.pid} is not among {children}")
        if not pathlib.Path(f"/proc/{self.child.pid}/cmdline").read_bytes().startswith(b"sleep"):
            raise RuntimeError(f"/proc/{self.child.pid} is another process")
        return number_of(step)

    def end(self):
        self.child.kill()
        self.child.wait()


class Files:
    """A folder of files, with a link. Each step reads what the last one has written, and closes it again."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        (self.folder / "sub").mkdir(parents=True)
        (self.folder / "last").symlink_to("sub/number")
        (self.folder / "sub/number").write_text("0")

    def ask(self, step):
        last = int((self.folder / "last").read_text())
        if last != step - 1:
            raise RuntimeError(f"the last step was {step - 1}, and the file says {last}")
        (self.folder / "sub/number").write_text(str(step))
        return number_of(step)

    def end(self):
        for path in ("last", "sub/number"):
            (self.folder / path).unlink()
        (self.folder / "sub").rmdir()
        self.folder.rmdir()


class SystemV:
    """A message queue, a semaphore, and shared memory of one key. The memory is mapped between two steps."""

    KEY, BYTES = 0x676D01, 4096

    def __init__(self):
        self.memory = ctypes.c_uint64.from_address(checked(LIBC.shmat(checked(LIBC.shmget(
            self.KEY, self.BYTES, IPC_CREAT | 0o600)), None, 0)))
        checked(LIBC.semget(self.KEY, 1, IPC_CREAT | 0o600))
        self.send(0, checked(LIBC.msgget(self.KEY, IPC_CREAT | 0o600)))

    @staticmethod
    def send(number, queue):
        checked(LIBC.msgsnd(queue, (ctypes.c_long * 2)(1, number), ctypes.c_size_t(8), IPC_NOWAIT))

    def ask(self, step):
        queue, semaphore = checked(LIBC.msgget(self.KEY, 0)), checked(LIBC.semget(self.KEY, 1, 0))
        message = (ctypes.c_long * 2)()
        checked(LIBC.msgrcv(queue, message, ctypes.c_size_t(8), ctypes.c_long(1), IPC_NOWAIT))
        found = (message[1], checked(LIBC.semctl(semaphore, 0, GETVAL)), self.memory.value)
        if found != ((step - 1), (step - 1) % 1000, step - 1):
            raise RuntimeError(f"the last step was {step - 1}, and the objects say {found}")
        self.send(step, queue)
        checked(LIBC.semctl(semaphore, 0, SETVAL, step % 1000))
        self.memory.value = step
        return number_of(step)

    def end(self):
        checked(LIBC.msgctl(LIBC.msgget(self.KEY, 0), IPC_RMID, None))
        checked(LIBC.semctl(LIBC.semget(self.KEY, 1, 0), 0, IPC_RMID))
        checked(LIBC.shmctl(LIBC.shmget(self.KEY, self.BYTES, 0), IPC_RMID, None))


class Queue:
    """A POSIX message queue that nobody has open. CRIU does not save it."""

    NAME = b"/gpumigrate-test"

    def __init__(self):
        posix = ctypes.CDLL("librt.so.1", use_errno=True)
        os.close(checked(posix.mq_open(self.NAME, os.O_CREAT | os.O_RDWR, 0o600, None)))
        self.unlink = posix.mq_unlink

    def ask(self, step):
        return number_of(step)

    def end(self):
        checked(self.unlink(self.NAME))


KINDS = {"itself": Itself, "files": lambda: Files("/dev/shm/gm-names"), "tmp": lambda: Files("/tmp/gm-names"),
         "system-v": SystemV, "queue": Queue}


def main():
    kind, steps = sys.argv[1], int(sys.argv[2])
    helper, device = KINDS[kind](), Device(BLOCKS, BLOCK_BYTES)
    total, pace = 0, Pace(steps, STEP_S)
    for step in range(1, steps + 1):
        device.change(step)
        total = (total * 31 + helper.ask(step)) % 2**61
        if step % COMPARE_EVERY == 0:
            device.compare()
        print(f"step {step}", flush=True)
        pace.wait(step)
    device.compare()
    helper.end()
    print(json.dumps({"digest": f"{device.digest()}-{total}", "steps": steps}), flush=True)


if __name__ == "__main__":
    main()
