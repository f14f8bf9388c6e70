# SPDX-License-Identifier: Apache-2.0
"""Under systemd, with an installation in /usr/local: a site of one machine by the commands of docs/site/install.md, and what
becomes of a job when its agent's unit is restarted, stopped, killed, and restarted as a unit without KillMode would be.
`units_trial.py BUILD OUT` writes what it saw to OUT, as JSON."""
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from waiting import eventually  # noqa: E402

BUILD, OUT = sys.argv[1:]
HOME = "/var/lib/gpumigrate"
SETTINGS = pathlib.Path("/etc/gpumigrate/agent.toml")
LIBRARIES = "/usr/local/lib/gpumigrate/lib/cudasim"
GPU = {"LD_LIBRARY_PATH": LIBRARIES, "CUDASIM_DIR": "/tmp/gpu", "CUDASIM_DEVICES": "1", "CUDASIM_MEMORY": "512MiB"}


def run(*words):
    return subprocess.run(words, env=os.environ | {"GPUMIGRATE_HOME": HOME}, capture_output=True, text=True, timeout=120)


def call(*words):
    result = run(*words)
    if result.returncode != 0:
        raise AssertionError(f"{words}: {result.returncode} {result.stdout} {result.stderr}")
    return result.stdout


def is_ready():
    result = run("gpumigrate", "nodes", "-o", "json")
    return result.returncode == 0 and [node["state"] for node in json.loads(result.stdout)] == ["ready"]


def main_pid(unit):
    return int(call("systemctl", "show", "--property", "MainPID", "--value", unit))


def set_up_site():
    call("gpumigrate", "cluster", "init", "--host", "127.0.0.1", "--out", "/etc/gpumigrate")
    call("systemctl", "start", "gpumigrate-coordinator")
    eventually(lambda: run("gpumigrate", "nodes").returncode == 0, "the coordinator answers")
    pathlib.Path("/root/token").write_text(call("gpumigrate", "node", "token", "node-a"))
    call("gpumigrate", "node", "join", "/root/token", "--address", "127.0.0.1", "--out", "/etc/gpumigrate")
    # The software driver's devices replace a real driver's files.
    os.makedirs("/tmp/gpu")
    environment = ", ".join(f'"{name}={value}"' for name, value in GPU.items())
    SETTINGS.write_text(f"job_environment = [{environment}]\nrehearsal = false\nkernel_log = ''\n" + SETTINGS.read_text())
    drop_in("gpu", "\n".join(f"Environment={name}={value}" for name, value in GPU.items()))
    call("systemctl", "start", "gpumigrate-agent")
    eventually(is_ready, "the node is ready")


def drop_in(name, lines):
    folder = pathlib.Path("/etc/systemd/system/gpumigrate-agent.service.d")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.conf").write_text(f"[Service]\n{lines}\n")
    call("systemctl", "daemon-reload")


def steps(name):
    """The last line of its output, once there is another one."""
    def last():
        return run("gpumigrate", "logs", name, "--tail", "1").stdout
    before = last()
    return eventually(lambda: last() not in ("", before) and last(), f"{name} works")


def job_pid():
    found = [pid.name for pid in pathlib.Path("/proc").glob("[0-9]*") if exe_of(pid).endswith("/charlm")]
    return int(found[0]) if found else 0


def exe_of(pid):
    try:
        return os.readlink(pid / "exe")
    except OSError:
        return ""


def after(change):
    """Whether the same process works on after the change, once the node is ready."""
    pid, agent = job_pid(), main_pid("gpumigrate-agent")
    change(agent)
    eventually(lambda: is_ready() and main_pid("gpumigrate-agent") not in (0, agent), "another agent is ready")
    same = job_pid() == pid and pid != 0
    if same:
        steps("job")
    return same


def stop_and_start(_agent):
    call("systemctl", "stop", "gpumigrate-agent")
    if job_pid() == 0:
        raise AssertionError("the job ended with its agent's unit")
    call("systemctl", "start", "gpumigrate-agent")


def main():
    seen = {}
    try:
        set_up_site()
        call("gpumigrate", "run", "--detach", "--cooperative", "--name", "job", "--", f"{BUILD}/bin/examples/charlm",
             "--params", "100000", "--print-every", "1", "--steps", "100000000")
        steps("job")
        seen["restart"] = after(lambda _: call("systemctl", "restart", "gpumigrate-agent"))
        seen["stop"] = after(stop_and_start)
        seen["kill"] = after(lambda agent: os.kill(agent, 9))
        coordinator = main_pid("gpumigrate-coordinator")
        call("systemctl", "restart", "gpumigrate-coordinator")
        eventually(lambda: is_ready() and main_pid("gpumigrate-coordinator") != coordinator, "another coordinator is ready")
        steps("job")
        seen["failed"] = call("systemctl", "list-units", "--failed", "--plain", "--no-legend", "gpumigrate-*").strip()
        drop_in("whole", "KillMode=control-group")
        seen["control-group"] = after(lambda _: call("systemctl", "restart", "gpumigrate-agent"))
    except BaseException as error:  # noqa: BLE001  (it is the report)
        seen["error"] = repr(error)
        seen["journal"] = run("journalctl", "-u", "gpumigrate-*", "--no-pager", "-n", "60").stdout
    pathlib.Path(OUT).write_text(json.dumps(seen, indent=1))


main()
