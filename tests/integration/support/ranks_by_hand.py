# SPDX-License-Identifier: Apache-2.0
"""Ranks of an example that were started by hand: what a job of several ranks must end with."""
import os
import socket
import subprocess
import tempfile

from cluster import BUILD, COMMAND_LIMIT_S, EXAMPLES, final_object


def run_by_hand(ranks, *arguments, program="charlm-dp", limit_s=COMMAND_LIMIT_S):
    """It runs without gpumigrate, as many ranks of one machine: the last object of each."""
    # Bound all the time, and never listening: rank 0 may listen there, and nobody else is given the port.
    with socket.socket() as held, tempfile.TemporaryDirectory() as folder:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        common = dict(os.environ, LD_LIBRARY_PATH=f"{BUILD}/lib/cudasim:{BUILD}/lib/ncclsim", CUDASIM_DIR=folder,
                      CUDASIM_DEVICES=str(ranks), CUDASIM_MEMORY="1GiB", WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port), NCCL_SOCKET_IFNAME="lo")
        processes = [subprocess.Popen([EXAMPLES / program, "--without-ckpt", *arguments], stdout=subprocess.PIPE, text=True,
                                      env=dict(common, RANK=str(rank), CUDA_VISIBLE_DEVICES=str(rank)))
                     for rank in range(ranks)]
        return [final_object(process.communicate(timeout=limit_s)[0]) for process in processes]
