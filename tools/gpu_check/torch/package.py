#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The model of train.py, trained with the package gpumigrate. The job's memory is named, and copied while it works. Each
step prints "step N LOSS", the loss to the last bit. The same arguments give the same losses. Without a GPU it trains on the
processor."""
import argparse
import contextlib

import train  # imported first, because it sets variables that cuBLAS reads

import gpumigrate
import torch


class Batches:
    """Random tokens without an end. It keeps its own position, so no batch is read twice."""

    def __init__(self, vocabulary):
        self.tokens, self.next = train.Tokens(vocabulary), 0

    def __iter__(self):
        while True:
            first, self.next = self.next * train.BATCH, self.next + 1
            items = [self.tokens[(first + i) % len(self.tokens)] for i in range(train.BATCH)]
            yield tuple(torch.stack(part) for part in zip(*items))

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=("eager", "compile"), default="eager")
    parser.add_argument("--optimizer", choices=("foreach", "fused"), default="foreach")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=train.WIDTH)
    parser.add_argument("--vocabulary", type=int, default=train.VOCABULARY)
    return parser.parse_args()


def main():
    options = parse()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    model = train.Model(options.layers, options.width, options.vocabulary).to(device)
    forward = torch.compile(model) if options.mode == "compile" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, **{options.optimizer: True})
    batches = Batches(options.vocabulary)

    def learn(tokens, wanted):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16) if device == "cuda" else contextlib.nullcontext():
            loss = forward(tokens.to(device), wanted.to(device))
        loss.backward()
        optimizer.step()
        return loss.item()

    job = gpumigrate.attach(model=model, optimizer=optimizer, loader=batches)
    job.warmup(lambda: learn(*next(iter(Batches(options.vocabulary)))))
    for batch in job.steps():
        number = batches.next  # a moved job continues this number, because its standby continues the source's
                               # batches
        print("step", number, learn(*batch).hex(), flush=True)
        if number == options.steps:
            break


if __name__ == "__main__":
    main()
