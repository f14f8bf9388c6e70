# SPDX-License-Identifier: Apache-2.0
"""Programs that nobody here wrote, beside or inside a program with device memory: `real_programs.py NAME FOLDER`.

Each step changes device memory, asks the program of that NAME for an answer, compares it with what is right, and
prints `step N`. What is wrong ends it with a line `WRONG: ...`. Its files are in FOLDER. PROGRAMS has them all: how each is started, and
Debian's packages that bring it."""
import ctypes
import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

STEP_S = 0.02
ANSWER_S = 60


class Device:
    """A piece of memory of the first GPU that holds the number of the last step."""

    def __init__(self):
        self.cuda, self.memory, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64(), ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.call("cuMemAlloc_v2", ctypes.byref(self.memory), ctypes.c_size_t(1 << 20))
        self.written = 0
        self.write(0)

    def call(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        if code:
            wrong(f"{name} returned {code}")

    def write(self, number):
        self.call("cuMemcpyHtoD_v2", self.memory, ctypes.byref(ctypes.c_uint64(number)), ctypes.c_size_t(8))
        self.written = number

    def compare(self):
        found = ctypes.c_uint64()
        self.call("cuMemcpyDtoH_v2", ctypes.byref(found), self.memory, ctypes.c_size_t(8))
        if found.value != self.written:
            wrong(f"device memory has {found.value}, {self.written} was written")


def wrong(what):
    print(f"WRONG: {what}", flush=True)
    os._exit(3)


def make_folder():
    return tempfile.mkdtemp(prefix="real-", dir=sys.argv[2])


def numbers(step):
    return 100 + step * 7 % 800, 100 + step * 13 % 800


def source(text):
    """A file for an interpreter that takes no text as an argument."""
    path = os.path.join(make_folder(), "source")
    with open(path, "w") as file:
        file.write(text)
    return path


class Worker:
    """Answers lines: the product of two numbers, or what `answer` makes of them."""

    def __init__(self, *command, question="{} {}", answer=lambda a, b: str(a * b)):
        self.question, self.answer = question, answer
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, step):
        a, b = numbers(step)
        self.child.stdin.write(self.question.format(a, b) + "\n")
        self.child.stdin.flush()
        found = self.child.stdout.readline().strip()
        if found != self.answer(a, b):
            wrong(f"the answer to {a}, {b} is {found!r}")


class Echo(Worker):
    """Gives each line back."""

    def __init__(self, *command):
        super().__init__(*command, question="{} plus {}", answer=lambda a, b: f"{a} plus {b}")


class Server:
    """Answers over one connection to a Unix socket that stays open."""

    def __init__(self, *command):
        self.folder = make_folder()
        path = f"{self.folder}/s"
        self.child = subprocess.Popen([word.replace("SOCKET", path).replace("FOLDER", self.folder) for word in command],
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        until = time.monotonic() + ANSWER_S
        while True:
            self.socket = socket.socket(socket.AF_UNIX)
            try:
                self.socket.connect(path)
                return
            except OSError as failure:
                self.socket.close()
                if time.monotonic() > until:
                    wrong(f"{command[0]} has no socket: {failure}")
                time.sleep(0.05)

    def talk(self, request, expected):
        self.socket.sendall(request)
        found = b""
        while len(found) < len(expected):
            part = self.socket.recv(len(expected) - len(found))
            if not part:
                wrong(f"the server closed its connection after {found!r}")
            found += part
        if found != expected:
            wrong(f"{found!r} instead of {expected!r}")


class Redis(Server):
    def __init__(self, *options):
        super().__init__("redis-server", "--port", "0", "--unixsocket", "SOCKET", "--dir", "FOLDER", *options)

    def ask(self, step):
        self.talk(b"INCR steps\r\n", b":%d\r\n" % (step + 1))


class Memcached(Server):
    def __init__(self):
        super().__init__("memcached", "-s", "SOCKET", "-u", "root")
        self.talk(b"set steps 0 0 1\r\n0\r\n", b"STORED\r\n")

    def ask(self, step):
        self.talk(b"incr steps 1\r\n", b"%d\r\n" % (step + 1))


class Plain:
    def ask(self, step):
        pass


class Numpy:
    def __init__(self):
        import numpy  # noqa: PLC0415
        self.array = numpy.zeros(1 << 16)

    def ask(self, step):
        self.array += 1
        if self.array.sum() != (step + 1) * self.array.size:
            wrong("an array of numpy")


class Frame:
    def __init__(self):
        import pandas  # noqa: PLC0415
        self.pandas = pandas

    def ask(self, step):
        a, b = numbers(step)
        frame = self.pandas.DataFrame({"x": range(a), "y": [b] * a})
        if frame.groupby("y").x.sum().iloc[0] != a * (a - 1) // 2:
            wrong("a sum of pandas")


class Solver:
    def __init__(self):
        import numpy  # noqa: PLC0415
        import scipy.linalg  # noqa: PLC0415
        self.numpy, self.linalg = numpy, scipy.linalg

    def ask(self, step):
        a, b = numbers(step)
        found = self.linalg.solve(self.numpy.array([[a, 0.0], [0.0, b]]), [a, b])
        if abs(found - 1).max() > 1e-9:
            wrong("a solution of scipy")


class Database:
    """SQLite in memory, and as a file with a log that is written ahead."""

    def __init__(self, path=":memory:"):
        import sqlite3  # noqa: PLC0415
        if path == "file":
            path = make_folder() + "/db"
        self.database = sqlite3.connect(path)
        self.database.execute("pragma journal_mode=wal")
        self.database.execute("create table steps (number integer)")

    def ask(self, step):
        self.database.execute("insert into steps values (?)", (step,))
        self.database.commit()
        if self.database.execute("select count(*) from steps").fetchone()[0] != step + 1:
            wrong("a count of SQLite")


class Hdf5:
    def __init__(self):
        import h5py  # noqa: PLC0415
        self.file = h5py.File(make_folder() + "/data.h5", "w")
        self.data = self.file.create_dataset("steps", (1 << 16,), "i8")

    def ask(self, step):
        self.data[step] = step + 1
        if self.data[step] != step + 1:
            wrong("a number of h5py")


class Lmdb:
    def __init__(self):
        import lmdb  # noqa: PLC0415
        self.environment = lmdb.open(make_folder())

    def ask(self, step):
        with self.environment.begin(write=True) as transaction:
            transaction.put(b"step", str(step).encode())
        with self.environment.begin() as transaction:
            if transaction.get(b"step") != str(step).encode():
                wrong("a value of LMDB")


class Pictures:
    def __init__(self):
        import PIL.Image  # noqa: PLC0415
        self.image = PIL.Image

    def ask(self, step):
        a, b = numbers(step)
        if self.image.new("L", (a, b), 7).resize((10, 10)).getpixel((5, 5)) != 7:
            wrong("a picture of PIL")


class Messages:
    def __init__(self):
        import zmq  # noqa: PLC0415
        context = zmq.Context()
        path = "ipc://" + make_folder() + "/s"
        self.one, self.other = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
        self.one.bind(path)
        self.other.connect(path)

    def ask(self, step):
        self.one.send(str(step).encode())
        if self.other.recv() != str(step).encode():
            wrong("a message of ZeroMQ")


class Compressor:
    def __init__(self, *command):
        self.command = command

    def ask(self, step):
        data = bytes(str(step), "ascii") * 1000
        packed = subprocess.run([*self.command, "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout
        found = subprocess.run([*self.command, "-dc"], input=packed, stdout=subprocess.PIPE, check=True).stdout
        if found != data:
            wrong(f"data that {self.command[0]} packed")


SHELL = "while read a b; do echo $((a*b)); done"
AWK = "{print $1*$2; fflush()}"
# The class of each worker, and the packages of the program that the worker starts.
INSIDE = {
    "plain": (Plain, ""),
    "bash": (lambda: Worker("bash", "-c", SHELL), "bash"),
    "bc": (lambda: Worker("bc", "-q", question="{}*{}"), "bc"),
    "busybox-awk": (lambda: Worker("busybox", "awk", AWK), "busybox"),
    "busybox-sh": (lambda: Worker("busybox", "sh", "-c", SHELL), "busybox"),
    "bzip2": (lambda: Compressor("bzip2"), "bzip2"),
    "cat": (lambda: Echo("cat"), "coreutils"),
    "dash": (lambda: Worker("dash", "-c", SHELL), "dash"),
    "dc": (lambda: Worker("dc", question="{} {}*p"), "dc"),
    "erlang": (lambda: Worker("erl", "-noshell", "-eval", "F = fun(F) -> {ok, [A, B]} = io:fread(\"\", \"~d ~d\"), "
                              "io:format(\"~w~n\", [A*B]), F(F) end, F(F)."), "erlang-base"),
    "expect": (lambda: Worker("expect", "-c", "while {[gets stdin line] >= 0} { puts [expr [join $line *]]; flush stdout }"), "expect"),
    "gawk": (lambda: Worker("gawk", AWK), "gawk"),
    "gforth": (lambda: Worker("gforth", "-e", ": s 0 swap 0 u.r ; : l begin pad 80 stdin read-line throw while pad swap evaluate "
                              "* 0 .r cr stdout flush-file drop repeat ; l"), "gforth"),
    "grep": (lambda: Echo("grep", "--line-buffered", "plus"), "grep"),
    "guile": (lambda: Worker("guile", "-c", "(let loop () (let* ((a (read)) (b (read))) (display (* a b)) (newline) (force-output) (loop)))"),
              "guile-3.0"),
    "gzip": (lambda: Compressor("gzip"), "gzip"),
    "h5py": (Hdf5, "python3-h5py"),
    "jq": (lambda: Worker("jq", "--unbuffered", "-n", "inputs|.[0]*.[1]", question="[{},{}]"), "jq"),
    "ksh": (lambda: Worker("ksh93", "-c", SHELL), "ksh93u+m"),
    "lmdb": (Lmdb, "python3-lmdb"),
    "lua": (lambda: Worker("lua5.4", "-e", 'for l in io.lines() do local a,b=l:match("(%d+) (%d+)") print(math.tointeger(a*b)) io.flush() end'),
            "lua5.4"),
    "mawk": (lambda: Worker("mawk", "-W", "interactive", "{print $1*$2}"), "mawk"),
    "memcached": (Memcached, "memcached"),
    "node": (lambda: Worker("node", "-e", 'require("readline").createInterface({input:process.stdin}).on("line",'
                            'l=>{const [a,b]=l.split(" ").map(Number);console.log(a*b)})'), "nodejs"),
    "numpy": (Numpy, "python3-numpy"),
    "ocaml": (lambda: Worker("ocaml", source('while true do Scanf.scanf " %d %d" (fun a b -> Printf.printf "%d\\n%!" (a*b)) done')),
              "ocaml"),
    "pandas": (Frame, "python3-pandas"),
    "pari": (lambda: Worker("gp", "-q", "-f", question="{}*{}"), "pari-gp"),
    "perl": (lambda: Worker("perl", "-ne", '$|=1; ($a,$b)=split; print $a*$b,"\\n"'), "perl"),
    "php": (lambda: Worker("php", "-r", 'while($l=fgets(STDIN)){[$a,$b]=explode(" ",$l);echo $a*$b,"\\n";}'), "php-cli"),
    "pictures": (Pictures, "python3-pil"),
    "python": (lambda: Worker("/usr/bin/python3", "-uc", "while True: a, b = input().split(); print(int(a) * int(b))"), "python3"),
    "r": (lambda: Worker("Rscript", "-e", 'f <- file("stdin"); open(f); while (TRUE) { x <- as.integer(strsplit(readLines(f, 1), " ")[[1]]); '
                         'cat(x[1]*x[2], "\\n", sep=""); flush(stdout()) }'), "r-base-core"),
    "redis": (lambda: Redis("--save", ""), "redis-server"),
    "redis-aof": (lambda: Redis("--appendonly", "yes", "--save", ""), "redis-server"),
    "ruby": (lambda: Worker("ruby", "-ne", "$stdout.sync=true; a,b=$_.split.map(&:to_i); puts a*b"), "ruby"),
    "sbcl": (lambda: Worker("sbcl", "--noinform", "--eval", "(loop (format t \"~d~%\" (* (read) (read))) (finish-output))"), "sbcl"),
    "scipy": (Solver, "python3-scipy"),
    "sed": (lambda: Echo("sed", "-u", "s/plus/plus/"), "sed"),
    "socat": (lambda: Echo("socat", "-", "EXEC:cat"), "socat"),
    "sqlite": (Database, "libsqlite3-0"),
    "sqlite-wal": (lambda: Database("file"), "libsqlite3-0"),
    "sqlite3": (lambda: Worker("stdbuf", "-oL", "sqlite3", ":memory:", question="select {}*{};"), "sqlite3"),
    "swipl": (lambda: Worker("swipl", "-q", "-g", "repeat,read_term(A-B,[]),C is A*B,writeln(C),flush_output,fail", question="{}-{}."),
              "swi-prolog-nox"),
    "tee": (lambda: Echo("tee"), "coreutils"),
    "tr": (lambda: Echo("stdbuf", "-oL", "tr", "X", "Y"), "coreutils"),
    "xz": (lambda: Compressor("xz"), "xz-utils"),
    "zmq": (Messages, "python3-zmq"),
    "zsh": (lambda: Worker("zsh", "-fc", SHELL), "zsh"),
    "zstd": (lambda: Compressor("zstd", "-q"), "zstd"),
}
# Commands that start the plain program. JOB stands for its words, LINE for a line that a shell reads.
AROUND = {
    "bash-job-control": (["bash", "-mc", "LINE & wait $!"], "bash"),
    "bash-pipe": (["bash", "-c", "LINE | cat"], "bash"),
    "chrt": (["chrt", "-b", "0", "JOB"], "util-linux"),
    "daemon": (["sh", "-c", "nohup setsid LINE & wait; sleep 1000000"], "util-linux"),
    "dbus-run-session": (["dbus-run-session", "--", "JOB"], "dbus-daemon"),
    "env": (["env", "GREETING=hello", "JOB"], "coreutils"),
    "faketime": (["faketime", "-f", "+1d", "JOB"], "faketime"),
    "fakeroot": (["fakeroot", "JOB"], "fakeroot"),
    "flock": (["flock", "FOLDER/lock", "JOB"], "util-linux"),
    "gdb": (["gdb", "-q", "-batch", "-ex", "run", "--args", "JOB"], "gdb"),
    "ionice": (["ionice", "-c", "2", "-n", "6", "JOB"], "util-linux"),
    "make": (["make", "-f", "/dev/null", "--eval", "all:;@LINE"], "make"),
    "nice": (["nice", "-n", "5", "JOB"], "coreutils"),
    "nohup": (["nohup", "JOB"], "coreutils"),
    "numactl": (["numactl", "--physcpubind=0", "JOB"], "numactl"),
    "parallel": (["parallel", "--will-cite", "--line-buffer", "sh", "-c", "::: LINE"], "parallel"),
    "prlimit": (["prlimit", "--nofile=2000", "JOB"], "util-linux"),
    "script": (["script", "-qefc", "LINE", "/dev/null"], "bsdutils"),
    "setarch": (["setarch", "-R", "JOB"], "util-linux"),
    "setpriv": (["setpriv", "--no-new-privs", "JOB"], "util-linux"),
    "setsid": (["setsid", "-w", "JOB"], "util-linux"),
    "stdbuf": (["stdbuf", "-oL", "JOB"], "coreutils"),
    "strace": (["strace", "-f", "-o", "/dev/null", "JOB"], "strace"),
    "taskset": (["taskset", "-c", "0", "JOB"], "util-linux"),
    "time": (["bash", "-c", "time LINE"], "bash"),
    "timeout": (["timeout", "1h", "JOB"], "coreutils"),
    "unshare": (["unshare", "-m", "JOB"], "util-linux"),
    "xargs": (["sh", "-c", "echo 1 | xargs -I{} LINE"], "findutils"),
}
PROGRAMS = {**INSIDE, **AROUND}


def packages(name):
    return PROGRAMS[name][1].split()


@functools.cache
def installed_packages():
    listed = subprocess.run(["dpkg-query", "-W", "-f=${Package} ${db:Status-Status}\n"], capture_output=True, text=True,
                            check=True).stdout
    return {line.split()[0] for line in listed.splitlines() if line.endswith(" installed")}


def is_there(name):
    """The packages of a program are installed."""
    return installed_packages().issuperset(packages(name))


def command(name, folder):
    """Its words, for `gpumigrate run`."""
    job = ["/usr/bin/python3", os.path.abspath(__file__), name if name in INSIDE else "plain", str(folder)]
    if name in INSIDE:
        return job
    words = []
    for word in AROUND[name][0]:
        word = word.replace("LINE", " ".join(job)).replace("FOLDER", str(folder))
        words += job if word == "JOB" else word.split(" ", 1) if word.startswith(":::") else [word]
    return words


def main():
    name = sys.argv[1]
    if name == "--packages":
        print(*sorted({package for each in PROGRAMS for package in packages(each)}))
        return
    if name == "--list":
        print(json.dumps({each: is_there(each) for each in PROGRAMS}))
        return
    device, worker, step = Device(), INSIDE[name][0](), 0
    while True:
        device.compare()
        device.write(step + 1)
        worker.ask(step)
        step += 1
        print("step", step, flush=True)
        time.sleep(STEP_S)


if __name__ == "__main__":
    main()
