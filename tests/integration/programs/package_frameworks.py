# SPDX-License-Identifier: Apache-2.0
"""Trains a small model with Trainer of transformers or with Accelerate, and the package gpumigrate: `package_frameworks.py
trainer|accelerate [OPTIONS]`. torch computes on the processor, in pinned memory of the GPU driver (package_torch.py).

Each line has a step's number, its loss in hexadecimal and a digest of its batch. The last line is a JSON object; its digest
is the same, moved or not."""
import argparse
import hashlib
import json
import os
import time

import torch
from package_torch import PinnedMemory
from torch import nn

WIDTH, CLASSES, ITEMS, BATCH = 24, 5, 61, 4


class Items(torch.utils.data.Dataset):
    def __len__(self):
        return ITEMS

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return {"x": torch.randn(WIDTH, generator=generator), "labels": torch.tensor(index % CLASSES), "number": torch.tensor(index)}


class Model(nn.Module):
    """With a loss, as Trainer wants it. It keeps the last loss and the last items that it was trained with."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Dropout(0.2), nn.Linear(64, CLASSES))

    def forward(self, x, labels, number):
        loss = nn.functional.cross_entropy(self.layers(x), labels)
        if self.training:
            self.seen = (loss.item(), number.tolist())
        return {"loss": loss}


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", choices=["trainer", "accelerate"])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--out", help="Trainer's folder")
    parser.add_argument("--seedable", action="store_true", help="Accelerate's own sampler")
    parser.add_argument("--slow-until", metavar="FILE", help="a step takes 2 s before that file is there")
    return parser.parse_args()


class Report:
    """One line for each step, and the digest at the end."""

    def __init__(self, options, model):
        self.slow_until, self.model = options.slow_until, model

    def step(self, number):
        loss, items = self.model.seen
        print(f"step {number} loss {loss.hex()} items {items}", flush=True)
        end = time.monotonic() + 2
        while self.slow_until and not os.path.exists(self.slow_until) and time.monotonic() < end:
            time.sleep(0.02)

    def end(self, *more):
        content = hashlib.sha256()
        for tensor in self.model.state_dict().values():
            content.update(bytes(tensor.detach().flatten().view(torch.uint8).tolist()))
        content.update(repr((more, torch.rand(1).item())).encode())
        print(json.dumps({"digest": content.hexdigest()}), flush=True)


def with_trainer(options):
    import transformers

    from gpumigrate.integrations import huggingface
    transformers.set_seed(5)
    model = Model()
    report = Report(options, model)

    class Steps(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            report.step(state.global_step)

    arguments = transformers.TrainingArguments(
        output_dir=options.out, use_cpu=True, num_train_epochs=options.epochs, per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=options.accumulate, logging_steps=5, save_strategy="no", eval_strategy="epoch", report_to=[],
        disable_tqdm=True, seed=5)
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=Items(), eval_dataset=Items(), callbacks=[Steps()])
    huggingface.prepare(trainer, memory=PinnedMemory())
    trainer.train()
    # Times differ from run to run.
    history = [{key: value for key, value in entry.items() if "runtime" not in key and "per_second" not in key}
               for entry in trainer.state.log_history]
    print(json.dumps(history))
    report.end(history)


def with_accelerate(options):
    import accelerate
    from accelerate.utils import DataLoaderConfiguration

    from gpumigrate.integrations import accelerate as movable
    torch.manual_seed(5)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=options.accumulate,
                                         dataloader_config=DataLoaderConfiguration(use_seedable_sampler=options.seedable))
    model = Model()
    report = Report(options, model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 7, 0.8)
    loader = torch.utils.data.DataLoader(Items(), batch_size=BATCH, shuffle=True)
    wrapped, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    job = movable.attach(accelerator, wrapped, optimizer, scheduler, loader, memory=PinnedMemory())
    step = 0

    def set_step(arrived):
        nonlocal step
        step = arrived
    job.register("step", lambda: step, set_step)
    for _ in job.epochs(options.epochs):
        for batch in job.steps(accumulate=options.accumulate):
            with accelerator.accumulate(wrapped):
                accelerator.backward(wrapped(**batch)["loss"])
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            step += 1
            report.step(step)
    report.end(scheduler.get_last_lr())


def main():
    options = parse()
    torch.set_num_threads(1)
    {"trainer": with_trainer, "accelerate": with_accelerate}[options.framework](options)


if __name__ == "__main__":
    main()
