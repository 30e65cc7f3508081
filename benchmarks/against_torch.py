# SPDX-License-Identifier: Apache-2.0
"""Compares `train` with PyTorch eager: the same step on the same machine in one run. No build or test uses this script.

    python benchmarks/against_torch.py --train build/cpu/bin/train

For each shape, runs of both systems alternate. Each run uses one rank and --threads threads. The script prints the
tokens/s of each system (median, minimum and maximum over the runs), and the ratios of Tessera's tokens/s to PyTorch's.
The PyTorch model has fused attention, fused AdamW, no dropout and a tied head. Both systems clip gradients. The bf16 of
PyTorch is autocast over fp32 weights.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional

SHAPES = {  # name: layers, heads, channels, batch, sequence, vocabulary, steps
    "4x128": (4, 4, 128, 8, 128, 256, 40),
    "6x384": (6, 6, 384, 4, 256, 256, 12),
    "gpt2": (12, 12, 768, 4, 128, 50257, 4),
}


class Block(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.mix = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for part in self.qkv(self.first(x)).split(c, dim=2))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(mixed.transpose(1, 2).reshape(b, t, c))
        return x + self.down(functional.gelu(self.up(self.second(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, layers, heads, channels, positions, vocabulary):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, channels), nn.Embedding(positions, channels)
        self.blocks = nn.ModuleList(Block(channels, heads) for _ in range(layers))
        self.last = nn.LayerNorm(channels)

    def forward(self, x, y):
        h = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return functional.cross_entropy((self.last(h) @ self.tokens.weight.T).flatten(0, 1).float(), y.flatten())


def torch_step(shape, bf16):
    layers, heads, channels, batch, sequence, vocabulary, steps = shape
    torch.manual_seed(1)
    model = Gpt2(layers, heads, channels, max(sequence, 1024), vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    x, y = torch.randint(0, vocabulary, (2, batch, sequence))
    times = []
    for step in range(steps + 2):
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = model(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step >= 2:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def tessera_step(shape, precision, options):
    layers, heads, channels, batch, sequence, vocabulary, steps = shape
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log.jsonl")
        subprocess.run([options.train, "--device", "cpu", "--model", f"layers={layers},heads={heads},channels={channels}",
                        "--vocabulary", str(vocabulary), "--batch", str(batch), "--sequence", str(sequence), "--steps",
                        str(steps + 2), "--clip", "1", "--precision", precision, "--threads", str(options.threads),
                        "--log", log, "--quiet"],
                       check=True)
        with open(log) as lines:
            records = [json.loads(line) for line in lines]
    return statistics.median([record["ms"] / 1e3 for record in records if "step" in record][2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES))
    parser.add_argument("--without-torch-bf16", action="store_true",
                        help="on a processor without bf16 instructions a step of PyTorch in bf16 takes minutes")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {options.threads} threads, median of {options.runs} runs (min to max), tokens/s")
    for name in options.shapes:
        shape = SHAPES[name]
        tokens = shape[3] * shape[4]
        systems = {"torch fp32": lambda: torch_step(shape, False), "tessera fp32": lambda: tessera_step(shape, "fp32", options),
                   "torch bf16": lambda: torch_step(shape, True), "tessera bf16": lambda: tessera_step(shape, "bf16", options)}
        if options.without_torch_bf16:
            del systems["torch bf16"]
        rates = {system: [] for system in systems}
        for _ in range(options.runs):
            for system, step in systems.items():
                rates[system].append(tokens / step())
        for system, values in rates.items():
            print(f"{name:6} {system:13} {statistics.median(values):9.0f} ({min(values):.0f} to {max(values):.0f})")
        middle = {system: statistics.median(values) for system, values in rates.items()}
        ratios = [f"{precision} {middle['tessera ' + precision] / middle['torch ' + precision]:.2f}x torch"
                  for precision in ("fp32", "bf16") if "torch " + precision in middle]
        print(f"{name:6} {', '.join(ratios)}, bf16 / fp32 of tessera "
              f"{middle['tessera bf16'] / middle['tessera fp32']:.2f}", flush=True)


if __name__ == "__main__":
    main()
