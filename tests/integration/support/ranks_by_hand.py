# SPDX-License-Identifier: Apache-2.0
"""Ranks of an example that were started by hand: what a job of several ranks must end with."""
import contextlib
import os
import pathlib
import random
import socket
import subprocess
import tempfile

from cluster import BUILD, COMMAND_LIMIT_S, EXAMPLES, final_object


@contextlib.contextmanager
def held_port():
    """Bound all the time, and never listening: rank 0 may listen there. It is none that connections are given: one of a
    daemon beside this has been found there."""
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.sample(range(max(first - 16384, 1025), first), 100):
        with socket.socket() as held:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                held.bind(("127.0.0.1", port))
            except OSError:
                continue
            yield port
            return
    raise AssertionError("none of 100 ports is free")


def run_by_hand(ranks, *arguments, program="charlm-dp", limit_s=COMMAND_LIMIT_S):
    """It runs without gpumigrate, as many ranks of one machine: the last object of each."""
    with held_port() as port, tempfile.TemporaryDirectory() as folder:
        common = dict(os.environ, LD_LIBRARY_PATH=f"{BUILD}/lib/cudasim:{BUILD}/lib/ncclsim", CUDASIM_DIR=folder,
                      CUDASIM_DEVICES=str(ranks), CUDASIM_MEMORY="1GiB", WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port), NCCL_SOCKET_IFNAME="lo", GPUMIGRATE_TEST_HURRY=folder)
        # Logs go to files. With pipes, a rank that waits for its pipe to be read would block all other ranks.
        logs = [pathlib.Path(folder, f"rank-{rank}.log") for rank in range(ranks)]
        processes = []
        for rank, log in enumerate(logs):
            with log.open("w") as output:
                processes.append(subprocess.Popen([EXAMPLES / program, "--without-ckpt", *arguments], stdout=output,
                                                  env=dict(common, RANK=str(rank), CUDA_VISIBLE_DEVICES=str(rank))))
        for process in processes:
            process.wait(timeout=limit_s)
        return [final_object(log.read_text()) for log in logs]
