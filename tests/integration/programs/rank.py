# SPDX-License-Identifier: Apache-2.0
"""A rank of a job: prints what it was told, meets the others at the rendezvous, then does what it is asked to.
rank.py ROUNDS [fail RANK CODE]: sums a number over all ranks, round by round. A rank that is to fail ends in the middle."""
import os
import signal
import socket
import sys
import time

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
rounds = int(sys.argv[1])
fails = sys.argv[2:] and int(sys.argv[3]) == rank and int(sys.argv[4])
print("rank", rank, "of", size, "local", os.environ["LOCAL_RANK"], "gpu", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)


def meet():
    """Rank 0 listens, the others dial: one connection each, as lines of text."""
    if rank == 0:
        server = socket.create_server(address)
        return [server.accept()[0].makefile("rw") for _ in range(size - 1)]
    while True:
        try:
            return [socket.create_connection(address).makefile("rw")]
        except ConnectionRefusedError:
            time.sleep(0.01)


def receive(link):
    """As in a collective, a rank whose peer has gone waits for ever."""
    try:
        line = link.readline()
    except ConnectionResetError:
        line = ""
    while not line:
        signal.pause()
    return int(line)


def send(link, number):
    try:
        print(number, file=link, flush=True)
    except (BrokenPipeError, ConnectionResetError):
        signal.pause()


def reduce(links, mine):
    if rank == 0:
        total = mine + sum(receive(link) for link in links)
        for link in links:
            send(link, total)
        return total
    send(links[0], mine)
    return receive(links[0])


links = meet()
total = 0
for step in range(rounds):
    if fails and step == rounds // 2:
        sys.exit(fails)
    total = reduce(links, total + rank + 1) % 1_000_003
    print("step", step, "total", total, flush=True)
    time.sleep(0.005)
