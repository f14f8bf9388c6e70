# SPDX-License-Identifier: Apache-2.0
"""A training with torch on a GPU. `gpumigrate run --cooperative -- python3 train.py` starts it.

Model, optimizer, scheduler, scaler and the loader's position move. Without a GPU it trains on the processor, and all
state moves as host state."""
import argparse

import torch
from torch import nn

import gpumigrate


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--items", type=int, default=4096)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    items = torch.randn(options.items, 64)
    data = torch.utils.data.TensorDataset(items, items.sin().sum(1, keepdim=True))
    loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs * len(loader))
    scaler = torch.amp.GradScaler(device, enabled=device == "cuda")

    def train_step(given, wanted):
        with torch.autocast(device, enabled=device == "cuda"):
            loss = nn.functional.mse_loss(model(given.to(device)), wanted.to(device))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        return loss.item()

    job = gpumigrate.attach(model=model, optimizer=optimizer, scaler=scaler, scheduler=scheduler, loader=loader)
    # Warms up a standby while the source works, so that code that is compiled, tuned or loaded at first use
    # is ready afterwards.
    job.warmup(lambda: train_step(torch.zeros(32, 64), torch.zeros(32, 1)))
    for epoch in job.epochs(options.epochs):
        for given, wanted in job.steps():
            loss = train_step(given, wanted)
        print(f"epoch {epoch} loss {loss.hex()}", flush=True)


if __name__ == "__main__":
    main()
