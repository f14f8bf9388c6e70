# SPDX-License-Identifier: Apache-2.0
"""`gpumigrate local up` starts what has ended, whatever it is. The daemons are stand-ins that only listen and
register."""
import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from waiting import eventually, next_line

BUILD = pathlib.Path(os.environ["GPUMIGRATE_BUILD"]).resolve()
LIMIT_S = 60

# While HOME/hold exists, this coordinator is started but does not listen.
COORDINATOR = """#!{python}
import http.server, json, os, pathlib, socket, time, tomllib, urllib.parse
home = pathlib.Path(os.environ["GPUMIGRATE_HOME"])
config = tomllib.loads((home / "coordinator/coordinator.toml").read_text())
while (home / "hold").exists():
    time.sleep(0.01)

def is_ready(node):
    try:
        return os.readlink("/proc/%s/cwd" % (node / "pid").read_text()) == str(node)
    except OSError:
        return False

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        nodes = [dict(name=node.name, state="ready" if is_ready(node) else "away") for node in (home / "nodes").iterdir()]
        if self.path.startswith("/v1/events"):
            time.sleep(0.02)
        body = json.dumps(nodes if self.path == "/v1/nodes" else dict(events=[], next=0)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()
    def log_message(self, *_):
        pass

class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_UNIX
    def server_bind(self):
        path = pathlib.Path(self.server_address)
        path.unlink(missing_ok=True)
        self.socket.bind(str(path))
        self.server_name, self.server_port = "localhost", 0
    def get_request(self):
        connection, _ = self.socket.accept()
        return connection, ("unix", 0)

port = config["api_address"].rsplit(":", 1)[1]
address = "127.0.0.1:" + ("4711" if port == "0" else port)
api_socket = str(home / "coordinator/api.sock")
server = Server(api_socket, Handler)
api = dict(pid=os.getpid(), url="https://" + address, agent_address=address, socket="unix:" + api_socket)
(home / "coordinator/api.new").write_text(json.dumps(api))
os.rename(home / "coordinator/api.new", home / "coordinator/api.json")
server.serve_forever()
"""

AGENT = """#!{python}
import os, pathlib, signal, sys
folder = pathlib.Path(sys.argv[2]).parent
os.chdir(folder)
(folder / "pid").write_text(str(os.getpid()))
signal.pause()
"""


class LocalUp(unittest.TestCase):
    def setUp(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="gm-up-")).resolve()
        self.addCleanup(shutil.rmtree, self.home, ignore_errors=True)
        self.bin = self.home / "programs/bin"
        self.bin.mkdir(parents=True)
        library = self.home / "programs/lib/cudasim"
        library.mkdir(parents=True)
        (library / "libcuda.so.1").touch()
        shutil.copy(BUILD / "bin/gpumigrate", self.bin)
        for name, text in (("gpumigrate-coordinator", COORDINATOR), ("gpumigrate-agent", AGENT)):
            (self.bin / name).write_text(text.format(python=sys.executable))
            (self.bin / name).chmod(0o755)
        self.environment = dict(os.environ, GPUMIGRATE_HOME=str(self.home), GPUMIGRATE_SOFTWARE_GPU="1")
        self.addCleanup(self.call, "local", "down")

    def call(self, *arguments):
        return subprocess.run([self.bin / "gpumigrate", *arguments], env=self.environment,
                              capture_output=True, text=True,
                              timeout=LIMIT_S)

    def up(self, *arguments):
        result = self.call("local", "up", *arguments, "-o", "json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(all(process["runs"] for process in self.processes().values()), self.processes())
        return json.loads(result.stdout)

    def processes(self):
        return {process["name"]: process
                for process in json.loads(self.call("local", "status", "-o", "json").stdout)["processes"]}

    def kill(self, *names):
        for pid in [self.processes()[name]["pid"] for name in names]:
            process = os.pidfd_open(pid)
            os.kill(pid, signal.SIGKILL)
            select.select([process], [], [], LIMIT_S)
            os.close(process)

    @staticmethod
    def watches(pid):
        """Whether the process waits for a file to change."""
        folder = pathlib.Path(f"/proc/{pid}/fd")
        with contextlib.suppress(OSError):
            return any(os.readlink(link) == "anon_inode:inotify" for link in folder.iterdir())
        return False

    def test_agent_that_was_killed_is_started_again(self):
        self.up("--nodes", "3")
        for arguments in ((), ("--nodes", "2")):
            self.kill("node-c")
            state = self.up(*arguments)
            self.assertEqual((state["started"], len(state["nodes"])), (1, 3), arguments)

    def test_coordinator_and_agent_that_were_killed_together_are_started_again(self):
        self.up("--nodes", "2")
        url = json.loads((self.home / "coordinator/api.json").read_text())["url"]
        self.kill("coordinator", "node-b")
        self.assertEqual(self.up()["started"], 2)
        self.assertEqual(json.loads((self.home / "coordinator/api.json").read_text())["url"], url)

    def test_up_waits_for_a_coordinator_that_does_not_listen_yet(self):
        self.up("--nodes", "2")
        self.kill("coordinator", "node-b")
        before = self.processes()["coordinator"]["pid"]
        (self.home / "hold").touch()
        first = subprocess.Popen([self.bin / "gpumigrate", "local", "up"], env=self.environment,
                                 stderr=subprocess.DEVNULL)
        eventually(lambda: self.processes()["coordinator"]["pid"] != before,
                   "the first command has started a coordinator")
        first.kill()
        first.wait()
        second = subprocess.Popen([self.bin / "gpumigrate", "local", "up", "-o", "json"],
                                  env=self.environment,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        eventually(lambda: second.poll() is not None or self.watches(second.pid),
                   "the second command waits for it")
        (self.home / "hold").unlink()
        out, errors = second.communicate(timeout=LIMIT_S)
        self.assertEqual(second.returncode, 0, errors)
        self.assertEqual(json.loads(out)["started"], 1)

    def left(self, *arguments, waits_for, goes_on):
        """A command that waits shows what for, ends at the first signal, and at its limit with 124."""
        for number in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen([self.bin / "gpumigrate", *arguments], env=self.environment,
                                  stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
                line = next_line(process.stderr, f"{arguments} shows what it waits for")
                self.assertEqual(line, f"gpumigrate: waiting for {waits_for}\n")
                process.send_signal(number)
                _, errors = process.communicate(timeout=LIMIT_S)
            self.assertEqual(process.returncode, 2, errors)
            self.assertIn(f"gpumigrate: Interrupted while waiting for {waits_for}; {goes_on}", errors)
        limited = self.call(*arguments, "--timeout", "10ms")
        self.assertEqual(limited.returncode, 124, limited.stderr)
        self.assertRegex(limited.stderr, f"^gpumigrate: Timed out waiting for .*; {goes_on}\n$")

    def test_interrupted_up_reports_that_the_cluster_continues_to_start(self):
        (self.home / "hold").touch()
        goes_on = "the cluster continues to start; `gpumigrate local up` waits again"
        self.left("local", "up", waits_for="the coordinator to listen", goes_on=goes_on)
        (self.home / "hold").unlink()
        self.assertEqual(self.up()["started"], 2)

    def test_interrupted_down_reports_that_the_cluster_continues_to_stop(self):
        self.up("--nodes", "1")
        agent = self.processes()["node-a"]["pid"]
        os.kill(agent, signal.SIGSTOP)
        goes_on = "processes that were signalled still exit; `gpumigrate local down` stops the rest"
        self.left("local", "down", waits_for="the agents to end", goes_on=goes_on)
        self.assertTrue(self.processes()["coordinator"]["runs"])
        os.kill(agent, signal.SIGCONT)
        self.assertEqual(self.call("local", "down").returncode, 0)

    def test_killed_cluster_is_started_again_with_its_settings(self):
        self.up("--nodes", "3", "--gpus", "2", "--gpu-memory", "1GiB")
        self.kill("coordinator", "node-a", "node-b", "node-c")
        state = self.up()
        self.assertEqual((state["started"], len(state["nodes"]), state["gpus"], state["gpu_memory"]),
                         (4, 3, 2, "1GiB"))
