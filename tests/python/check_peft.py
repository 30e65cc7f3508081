#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares losses of adapters with PEFT's, from the same weights, adapters and tokens.

    python check_peft.py BUILD WORK

For a small GPT-2, OPT and LLaMA, PEFT makes an adapter for random weights. Its b is not zero, so both factors have
gradients from the first step on. PyTorch and train run 20 fp32 steps of AdamW from it on the same sequences. Each loss of
train must be within 1e-4 of PyTorch's. Then PEFT reads train's saved adapter, which must give the loss of train's merged
folder in transformers.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model

STEPS, BATCH, SEQUENCE, VOCABULARY, TOLERANCE = 20, 2, 32, 96, 1e-4
RATE, DECAY, BETAS, EPSILON = 1e-2, 0.1, (0.9, 0.95), 1e-8


def models():
    gpt2 = transformers.GPT2Config(
        n_layer=2, n_head=4, n_embd=48, n_positions=64, vocab_size=VOCABULARY, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    opt = transformers.OPTConfig(
        num_hidden_layers=2, num_attention_heads=4, hidden_size=48, ffn_dim=96, max_position_embeddings=64,
        vocab_size=VOCABULARY, word_embed_proj_dim=48, dropout=0.0, attention_dropout=0.0, layerdrop=0.0,
        pad_token_id=1)
    llama = transformers.LlamaConfig(
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, hidden_size=48, intermediate_size=80,
        max_position_embeddings=64, vocab_size=VOCABULARY, tie_word_embeddings=False)
    everything = dict(r=8, lora_alpha=16)
    return [
        ("gpt2", transformers.GPT2LMHeadModel, gpt2,
         dict(r=8, lora_alpha=16, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)),
        ("gpt2-patterns", transformers.GPT2LMHeadModel, gpt2,
         dict(r=4, lora_alpha=6, target_modules=["c_attn", "mlp.c_proj"], fan_in_fan_out=True, use_rslora=True,
              rank_pattern={"h.1.attn.c_attn": 2}, alpha_pattern={"mlp.c_proj": 3})),
        ("opt", transformers.OPTForCausalLM, opt,
         dict(everything, target_modules=["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"])),
        ("llama", transformers.LlamaForCausalLM, llama,
         dict(everything, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
                                          "down_proj"])),
        ("llama-all", transformers.LlamaForCausalLM, llama, dict(everything, target_modules="all-linear")),
        ("llama-upper", transformers.LlamaForCausalLM, llama,
         dict(r=3, lora_alpha=5, target_modules=["q_proj", "v_proj"], layers_to_transform=[1])),
    ]


def tokens():
    """Makes one stream of tokens. Sample i of both sides is tokens [i T, i T + T], with one more as the last target."""
    generator = numpy.random.default_rng(7)
    return generator.integers(2, VOCABULARY, STEPS * BATCH * SEQUENCE + 1).astype(numpy.uint16)


def loss_of(model, ids, targets):
    logits = model(input_ids=ids).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def batch_of(stream, step):
    begin = step * BATCH * SEQUENCE
    part = torch.from_numpy(stream[begin:begin + BATCH * SEQUENCE + 1].astype(numpy.int64))
    return part[:-1].reshape(BATCH, SEQUENCE), part[1:].reshape(BATCH, SEQUENCE)


def run(train, folder, kind, make, config, lora):
    torch.manual_seed(3)
    base, start, saved, merged = (folder / name for name in ("base", "start", "saved", "merged"))
    model = make(config).eval()
    model.save_pretrained(base)
    wrapped = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **lora))
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0.0, 0.05)
    wrapped.save_pretrained(start)
    stream = tokens()
    data = folder / "tokens.bin"
    header = numpy.zeros(256, numpy.int32)
    header[:3] = 20240520, 1, len(stream)
    data.write_bytes(header.tobytes() + stream.tobytes())

    trained = [p for p in wrapped.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE, betas=BETAS, eps=EPSILON, weight_decay=DECAY)
    wanted = []
    for step in range(STEPS):
        loss = loss_of(wrapped, *batch_of(stream, step))
        wanted.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    log = folder / "log.jsonl"
    arguments = [train, "--model", base, "--adapter", start, "--save-adapter", saved, "--merge", "--save", merged,
                 "--data", data, "--steps", STEPS, "--batch", BATCH, "--sequence", SEQUENCE, "--order",
                 "sequential", "--learning-rate", RATE, "--weight-decay", DECAY, "--beta1", BETAS[0], "--beta2",
                 BETAS[1], "--epsilon", EPSILON, "--clip", 0, "--log", log, "--quiet"]
    subprocess.run([str(argument) for argument in arguments], check=True)
    got = [row["loss"] for row in map(json.loads, log.read_text().splitlines()) if "loss" in row]
    assert len(got) == STEPS, got
    worst = max(abs(a - b) for a, b in zip(wanted, got))

    ids, targets = batch_of(stream, 0)
    with torch.no_grad():
        own = loss_of(wrapped, ids, targets).item()
        adapted = loss_of(PeftModel.from_pretrained(make.from_pretrained(base), saved).eval(), ids, targets).item()
        folded = loss_of(make.from_pretrained(merged).eval(), ids, targets).item()
    print(f"{kind}: loss {wanted[0]:.4f} -> {wanted[-1]:.4f}, largest difference of {STEPS} steps {worst:.2e}; "
          f"after them PEFT's own {own:.5f}, train's adapter in PEFT {adapted:.5f}, merged {folded:.5f}")
    assert worst <= TOLERANCE
    assert abs(own - adapted) <= TOLERANCE and abs(adapted - folded) <= 1e-5


def main():
    train = Path(sys.argv[1]).resolve() / "bin/train"
    for model in models():
        with tempfile.TemporaryDirectory(dir=sys.argv[2]) as folder:
            run(train, Path(folder), *model)


if __name__ == "__main__":
    main()
