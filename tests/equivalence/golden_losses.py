# SPDX-License-Identifier: Apache-2.0
"""Computes losses of a GPT-2 in PyTorch, for tests/equivalence/golden_losses_test.cpp. No test runs this script.

    train --model layers=2,heads=3,channels=48 --vocabulary 301 --sequence 33 --steps 0 --save w.safetensors
    python golden_losses.py --weights w.safetensors --heads 3 --batch 4 --sequence 33 --steps 20

The second command prints a JSON list of [loss, gradient norm] for every step. Weights come from a safetensors file with
Hugging Face's names. Tokens come from --data (raw uint16, read in order and repeated) or from the formula below, which the
test repeats. With --records the samples are records of several lengths, truncated or padded on the right with targets that
PyTorch ignores, and the last batch of an epoch may be smaller. The model has pre-LayerNorm blocks, epsilon 1e-5, tanh GELU
and a tied head. AdamW decays only parameters of two dims. torch.nn.utils.clip_grad_norm_ clips the gradient norm.
"""
import argparse
import json

import numpy
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional


def formula_tokens(count, vocabulary):
    return [(i * i + 3 * (i // 7)) % vocabulary for i in range(count)]


def formula_records(tokens, sequence):
    rows, first = [], 0
    while first + (length := 2 + (7 * len(rows) ** 2 + len(rows)) % (2 * sequence)) <= len(tokens):
        row = tokens[first:first + length][:sequence + 1]
        rows.append(row + [-100] * (sequence + 1 - len(row)))
        first += length
    return rows


class Block(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(channels, eps=1e-5)
        self.ln_2 = nn.LayerNorm(channels, eps=1e-5)
        # Conv1D: weights are (in, out).
        self.c_attn = nn.ParameterDict({"weight": torch.empty(channels, 3 * channels), "bias": torch.empty(3 * channels)})
        self.c_proj = nn.ParameterDict({"weight": torch.empty(channels, channels), "bias": torch.empty(channels)})
        self.c_fc = nn.ParameterDict({"weight": torch.empty(channels, 4 * channels), "bias": torch.empty(4 * channels)})
        self.mlp_proj = nn.ParameterDict({"weight": torch.empty(4 * channels, channels), "bias": torch.empty(channels)})

    def forward(self, x):
        batch, length, channels = x.shape
        qkv = self.ln_1(x) @ self.c_attn["weight"] + self.c_attn["bias"]
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in qkv.split(channels, dim=2))
        scores = q @ k.transpose(2, 3) / (channels // self.heads) ** 0.5
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        mixed = (scores.masked_fill(future, float("-inf")).softmax(-1) @ v).transpose(1, 2).reshape(batch, length, channels)
        x = x + mixed @ self.c_proj["weight"] + self.c_proj["bias"]
        hidden = functional.gelu(self.ln_2(x) @ self.c_fc["weight"] + self.c_fc["bias"], approximate="tanh")
        return x + hidden @ self.mlp_proj["weight"] + self.mlp_proj["bias"]


class Gpt2(nn.Module):
    def __init__(self, weights, heads):
        super().__init__()
        vocabulary, channels = weights["wte.weight"].shape
        layers = sum(name.endswith(".ln_1.weight") for name in weights)
        self.wte = nn.Embedding(vocabulary, channels)
        self.wpe = nn.Embedding(weights["wpe.weight"].shape[0], channels)
        self.h = nn.ModuleList(Block(channels, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(channels, eps=1e-5)
        own = dict(self.named_parameters())
        renamed = {n.replace(".attn.", ".").replace("mlp.c_proj", "mlp_proj").replace("mlp.c_fc", "c_fc"): w for n, w in weights.items()}
        assert own.keys() == renamed.keys(), own.keys() ^ renamed.keys()
        with torch.no_grad():
            for name, parameter in own.items():
                assert parameter.shape == renamed[name].shape, name
                parameter.copy_(renamed[name])

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        logits = self.ln_f(x) @ self.wte.weight.T
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)


def train(options):
    weights = {name: tensor.to(getattr(torch, options.type)) for name, tensor in load_file(options.weights).items()}
    model = Gpt2(weights, options.heads).to(getattr(torch, options.type))
    vocabulary = weights["wte.weight"].shape[0]
    if options.data:
        tokens = numpy.fromfile(options.data, dtype=numpy.uint16).astype(numpy.int64).tolist()
    else:
        tokens = formula_tokens(options.tokens, vocabulary)
    length = options.sequence
    if options.records:
        samples = formula_records(tokens, length)
        steps_per_epoch = -(-len(samples) // options.batch)
    else:
        samples = [tokens[i:i + length + 1] for i in range(0, len(tokens) - length, length)]
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": options.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
        lr=options.learning_rate, betas=(0.9, 0.999), eps=1e-8)
    records = []
    for step in range(options.steps):
        if options.records:
            begin = step % steps_per_epoch * options.batch
            rows = samples[begin:begin + options.batch]
        else:
            rows = [samples[i % len(samples)] for i in range(step * options.batch, (step + 1) * options.batch)]
        rows = torch.tensor(rows)
        loss = model(rows[:, :-1].clamp(min=0), rows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip if options.clip > 0 else float("inf"))
        optimizer.step()
        records.append([loss.item(), norm.item()])
    return records


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--heads", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True, help="sequences of a step, over all ranks")
    parser.add_argument("--sequence", type=int, required=True)
    parser.add_argument("--records", action="store_true")
    parser.add_argument("--data", help="raw uint16 tokens")
    parser.add_argument("--tokens", type=int, default=2000, help="how many tokens the formula gives")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--type", default="float32", choices=["float32", "float64"])
    torch.set_num_threads(1)
    print(json.dumps(train(parser.parse_args())))
