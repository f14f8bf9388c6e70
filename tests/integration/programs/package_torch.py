# SPDX-License-Identifier: Apache-2.0
"""Trains a small language model with torch and the package gpumigrate: `package_torch.py [OPTIONS]`.

torch computes on the processor, in pinned memory of the GPU driver, which the package names by its device pointers.
Each line has a step's loss in hexadecimal. The last line is a JSON object; its digest is the same, moved or not."""
import argparse
import ctypes
import hashlib
import json
import os
import random
import time

import torch
from torch import nn
from torch.nn import functional

import gpumigrate

TEXT = "the job moves while it works and nobody notices that it has moved at all; "
CONTEXT, WIDTH, HEADS, LAYERS = 16, 32, 4, 2


class PinnedMemory:
    """All tensors of more than one element lie in memory that both torch and the driver reach."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name} returned {code}")

    def holds(self, tensor):
        return tensor.numel() > 1

    def place(self, tensor):
        memory = ctypes.c_void_p()
        self.call("cuMemHostAlloc", ctypes.byref(memory), ctypes.c_size_t(tensor.nbytes), ctypes.c_uint(2))
        there = torch.frombuffer((ctypes.c_char * tensor.nbytes).from_address(memory.value), dtype=tensor.dtype)
        return there.view(tensor.shape).copy_(tensor)

    def pointer(self, tensor):
        if tensor.data_ptr() == 0:
            return 0
        pointer = ctypes.c_uint64()
        self.call("cuMemHostGetDevicePointer_v2", ctypes.byref(pointer), ctypes.c_void_p(tensor.data_ptr()), 0)
        return pointer.value


class Text(torch.utils.data.Dataset):
    def __init__(self):
        letters = sorted(set(TEXT))
        self.letters = len(letters)
        self.codes = torch.tensor([letters.index(letter) for letter in TEXT * 20])

    def __len__(self):
        return len(self.codes) - CONTEXT

    def __getitem__(self, index):
        piece = self.codes[index:index + CONTEXT + 1]
        return piece[:-1], piece[1:]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix = nn.MultiheadAttention(WIDTH, HEADS, dropout=0.1, batch_first=True)
        self.think = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))
        self.register_buffer("later", torch.triu(torch.ones(CONTEXT, CONTEXT, dtype=torch.bool), 1))

    def forward(self, x):
        y = self.before(x)
        x = x + self.mix(y, y, y, attn_mask=self.later, need_weights=False)[0]
        return x + self.think(self.between(x))


class Model(nn.Module):
    def __init__(self, letters):
        super().__init__()
        self.letter, self.place = nn.Embedding(letters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, letters, bias=False)
        self.head.weight = self.letter.weight  # weights that are tied
        self.register_buffer("seen", torch.zeros(letters), persistent=False)

    def forward(self, x):
        self.seen += torch.bincount(x.flatten(), minlength=len(self.seen))
        return self.head(self.blocks(self.letter(x) + self.place(torch.arange(x.shape[1]))))


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--slow-until", metavar="FILE", help="a step takes 0.3 s before that file is there")
    parser.add_argument("--optimizer", choices=["AdamW", "SGD"], default="AdamW")
    return parser.parse_args()


def main():
    options = parse()
    torch.set_num_threads(1)
    torch.manual_seed(11)
    random.seed(11)
    text = Text()
    model = Model(text.letters)
    settings = {"lr": 1e-3} if options.optimizer == "AdamW" else {"lr": 1e-2, "momentum": 0.9}
    optimizer = getattr(torch.optim, options.optimizer)(model.parameters(), **settings)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs * options.batches)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=7)
    sampler = torch.utils.data.RandomSampler(text, num_samples=options.batches * 4)
    loader = torch.utils.data.DataLoader(text, batch_size=4, sampler=sampler, num_workers=options.workers,
                                         multiprocessing_context="fork" if options.workers else None)
    job = gpumigrate.attach(model=model, optimizer=optimizer, scaler=scaler, scheduler=scheduler, loader=loader,
                            memory=PinnedMemory())
    step = 0

    def set_step(arrived):
        nonlocal step
        step = arrived
    job.register("step", lambda: step, set_step)
    for _ in job.epochs(options.epochs):
        for given, wanted in job.steps():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = functional.cross_entropy(model(given).flatten(0, 1), wanted.flatten())
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            step += 1
            if options.slow_until and not os.path.exists(options.slow_until):
                time.sleep(0.3)
            print(f"step {step} loss {loss.item().hex()}", flush=True)
    content = hashlib.sha256()
    for tensor in (*model.state_dict().values(), model.seen, *(value for state in optimizer.state.values()
                                                               for value in state.values())):
        content.update(bytes(tensor.detach().flatten().view(torch.uint8).tolist()))
    content.update(f"{scaler.state_dict()} {scheduler.get_last_lr()} {torch.rand(1).item()} {random.random()}".encode())
    print(json.dumps({"digest": content.hexdigest(), "steps": step}), flush=True)


if __name__ == "__main__":
    main()
