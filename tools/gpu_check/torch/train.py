#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A GPT of GPT-2's smallest size that learns random tokens with PyTorch on a GPU. It knows nothing of gpumigrate. Each
step prints "step N LOSS", the loss to the last bit. The last line is JSON. The same arguments give the same losses."""
import argparse
import hashlib
import json
import os
import statistics
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic only with this setting

import torch
import torch.nn.functional as F
from torch import nn

CONTEXT, BATCH, HEADS, VOCABULARY = 256, 4, 12, 50257
WIDTH = 64 * HEADS


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        query, key, value = (part.view(batch, length, HEADS, width // HEADS).transpose(1, 2)
                             for part in self.project(self.before(x)).split(width, 2))
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed(self.between(x))


class Model(nn.Module):
    def __init__(self, layers, width, vocabulary=VOCABULARY):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, wanted):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        guesses = self.head(self.last(x))
        return F.cross_entropy(guesses.view(-1, guesses.shape[-1]).float(), wanted.view(-1))


class Tokens(torch.utils.data.Dataset):
    def __init__(self, vocabulary=VOCABULARY):
        self.vocabulary = vocabulary

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        tokens = torch.randint(self.vocabulary, (CONTEXT + 1,), generator=torch.Generator().manual_seed(index))
        return tokens[:-1], tokens[1:]


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=("eager", "compile", "graph"), default="eager")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--pin", action="store_true")
    return parser.parse_args()


class Trainer:
    def __init__(self, options):
        self.model = Model(options.layers, WIDTH).cuda()
        self.in_graph = options.mode == "graph"
        self.forward = torch.compile(self.model) if options.mode == "compile" else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, fused=True, capturable=self.in_graph)
        self.graph = None

    def work(self, tokens, wanted):
        self.optimizer.zero_grad(set_to_none=not self.in_graph)
        with torch.autocast("cuda", torch.bfloat16):
            loss = self.forward(tokens, wanted)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def capture(self, tokens, wanted):
        self.tokens, self.wanted = tokens.clone(), wanted.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.work(self.tokens, self.wanted)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.work(self.tokens, self.wanted)

    def step(self, tokens, wanted):
        if not self.in_graph:
            return self.work(tokens, wanted)
        if self.graph is None:
            self.capture(tokens, wanted)
        self.tokens.copy_(tokens)
        self.wanted.copy_(wanted)
        self.graph.replay()
        return self.loss


def main():
    options = parse()
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    trainer = Trainer(options)
    loader = torch.utils.data.DataLoader(Tokens(), batch_size=BATCH, num_workers=options.workers,
                                         pin_memory=options.pin)
    times, losses = [], hashlib.sha256()
    for number, (tokens, wanted) in zip(range(1, options.steps + 1), loader):
        begin = time.perf_counter()
        loss = float(trainer.step(tokens.cuda(non_blocking=True), wanted.cuda(non_blocking=True)))
        times.append(1e3 * (time.perf_counter() - begin))
        losses.update(loss.hex().encode())
        print("step", number, loss.hex(), flush=True)
    weights = hashlib.sha256()
    for parameter in trainer.model.parameters():
        weights.update(parameter.detach().cpu().numpy().tobytes())
    print(json.dumps({"mode": options.mode, "losses": losses.hexdigest(), "weights": weights.hexdigest(),
                      "median_step_ms": round(statistics.median(times), 2),
                      "reserved_bytes": torch.cuda.memory_reserved()}), flush=True)


if __name__ == "__main__":
    main()
