# SPDX-License-Identifier: Apache-2.0
"""The demonstration behind tools/demo. It trains a model twice over a local cluster, once moved live, and shows both. The
program that is moved does not know of gpumigrate (transparent mode). If the nodes cannot move processes, it is a program
that uses ckpt.h, and the reason is shown."""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile


def last_object(text):
    return next(json.loads(line) for line in reversed(text.strip().split("\n")) if line.startswith("{"))


class Demo:
    def __init__(self, build):
        self.bin = pathlib.Path(build).resolve() / "bin"
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="gpumigrate-demo-"))
        self.environment = dict(os.environ, GPUMIGRATE_HOME=str(self.home))

    def call(self, *arguments, show=False, capture=True):
        command = [str(self.bin / "gpumigrate"), *map(str, arguments)]
        if show:
            print("\n$ gpumigrate " + " ".join(command[1:]).replace(str(self.bin) + "/", ""), flush=True)
        result = subprocess.run(command, env=self.environment, stdout=subprocess.PIPE if capture else None,
                                text=True)
        if result.returncode != 0:
            raise SystemExit(f"demo: {' '.join(command)} ended with exit status {result.returncode}")
        return result.stdout

    def start(self, name, node, way, training):
        self.call("run", *way, "--detach", "--name", name, "--node", node, "--", *training, show=True)

    def why_not_transparent(self):
        """Returns why an unmodified program cannot be moved to the other node here, or None."""
        program = self.bin / "examples" / "charlm-plain"
        self.call("run", "--detach", "--name", "probe", "--node", "node-a", "--", program, "--steps",
                  1_000_000, "--print-every", 1)
        self.wait_for_step("probe", 1, show=False)
        plan = subprocess.run([self.bin / "gpumigrate", "migrate", "probe", "--to", "node-b", "--dry-run"],
                              env=self.environment,
                              capture_output=True, text=True)
        self.call("stop", "probe", "--grace", "0s")
        return None if plan.returncode == 0 else (plan.stderr or plan.stdout).strip()

    def wait_for_step(self, name, step, show=True):
        """Follows the job's log until it has done `step`."""
        follower = subprocess.Popen([self.bin / "gpumigrate", "logs", name, "-f"], env=self.environment,
                                    stdout=subprocess.PIPE, text=True)
        with follower:
            for line in follower.stdout:
                if show:
                    print("  " + line, end="", flush=True)
                match = re.match(r"step (\d+)", line)
                if match and int(match.group(1)) >= step:
                    break
            follower.kill()


def loss_lines(log):
    return [(int(m.group(1)), float(m.group(2))) for m in re.finditer(r"^step (\d+)\s+loss ([0-9.]+)", log,
                                                                      re.M)]


def table(rows):
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}  {value}" for name, value in rows)


def summary(report, moved, unmoved, losses, steps_before):
    before = [loss for step, loss in losses if step <= steps_before][-1]
    after = losses[-1][1]
    same = moved["digest"] == unmoved["digest"]
    breakdown = ", ".join(f"{name} {value:.2f}" for name, value in report["downtime_breakdown_ms"].items()
                          if value)
    return same, table([
        ("downtime",
         f"{report['downtime_ms']:.2f} ms  (bound {report['bound_ms']:.2f} ms, bound by {report['bound_by']})"),
        ("of which", breakdown + " ms"),
        ("rounds", report["rounds"]),
        ("state", f"{report['state_bytes'] / 2**20:.1f} MiB"),
        ("sent",
         f"{report['sent_bytes'] / 2**20:.1f} MiB, {report['wire_bytes'] / 2**20:.1f} MiB on the wire"),
        ("from, to", f"{report['from']} -> {report['to']}, incarnation {report['incarnation']}"),
        ("verified", report["verified"]),
        ("loss", f"{before:.4f} before the move, {after:.4f} at the end"),
        ("digest, moved", moved["digest"]),
        ("digest, unmoved", unmoved["digest"] + ("  (equal)" if same else "  (DIFFERENT)")),
    ])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--params", type=int, default=1_000_000)
    options = parser.parse_args()

    demo = Demo(options.build)
    try:
        demo.call("local", "up", "--nodes", 2, "--gpus", 1, "--gpu-memory", "4GiB", show=True, capture=False)
        demo.call("gpus", show=True, capture=False)
        obstacle = demo.why_not_transparent()
        if obstacle:
            print(f"\nAn unmodified program cannot be moved between these nodes, so one that uses ckpt.h is:\n  {obstacle}")
        program, way = ("charlm", ["--cooperative"]) if obstacle else ("charlm-plain", [])
        training = [str(demo.bin / "examples" / program), "--params", options.params, "--steps",
                    options.steps, "--seed", 1]
        demo.start("unmoved", "node-a", way, training)
        demo.wait_for_step("unmoved", options.steps)
        demo.call("wait", "unmoved")
        unmoved = last_object(demo.call("logs", "unmoved"))

        demo.start("moved", "node-a", way, training)
        demo.wait_for_step("moved", options.steps // 4)
        demo.call("migrate", "moved", "--to", "node-b", "--live", show=True, capture=False)
        report = json.loads(demo.call("migrations", "-o", "json"))[0]
        demo.call("jobs", show=True, capture=False)
        demo.wait_for_step("moved", options.steps)
        demo.call("wait", "moved")
        log = demo.call("logs", "moved")
        same, text = summary(report["report"], last_object(log), unmoved, loss_lines(log), options.steps // 4)
        kind = "that uses ckpt.h" if obstacle else "that knows nothing of gpumigrate"
        print(f"\nA training job {kind}, of {options.steps} steps, moved live from one node to another:\n\n{text}\n")
        return 0 if same else 1
    finally:
        subprocess.run([demo.bin / "gpumigrate", "local", "down"], env=demo.environment,
                       stdout=subprocess.DEVNULL)
        shutil.rmtree(demo.home, ignore_errors=True)


sys.exit(main())
