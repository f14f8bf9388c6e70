# SPDX-License-Identifier: Apache-2.0
"""A program with a loop of its own, which calls start() and barrier(). `gpumigrate run --cooperative -- python3 answers.py`
starts it.

Each answer depends on all before it. A cache in device memory grows, and its length is host state. on_start opens the
log once the job is to work here. The last line is a JSON object with a digest, which is the same if the job was moved."""
import argparse
import hashlib
import json
import time

import buffers
import gpumigrate

ANSWER = 1 << 12


class Server:
    def __init__(self, job, answers):
        self.length, self.cache = 0, job.alloc(answers * ANSWER)
        job.buffer("cache", self.cache, kind="cache")
        job.register("length", lambda: self.length, self.set_length)

    def set_length(self, length):
        self.length = length

    def answer(self):
        earlier = buffers.read(self.cache.pointer, self.length * ANSWER) if self.length else b""
        text = hashlib.shake_128(earlier + str(self.length).encode()).digest(ANSWER)
        buffers.write(self.cache.pointer + self.length * ANSWER, text)
        self.length += 1
        return text


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=600)
    parser.add_argument("--answer-ms", type=float, default=5)
    options = parser.parse_args()
    buffers.make_context()
    job = gpumigrate.attach()
    server = Server(job, options.answers)
    job.on_start(lambda: print(f"serving from answer {server.length}", flush=True))
    job.start()
    text = b""
    while server.length < options.answers:
        text = server.answer()
        print(f"step {server.length}", flush=True)
        time.sleep(options.answer_ms / 1000)
        if server.length < options.answers:
            job.barrier()
    print(json.dumps({"digest": hashlib.sha256(text).hexdigest()}), flush=True)


if __name__ == "__main__":
    main()
