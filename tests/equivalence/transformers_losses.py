# SPDX-License-Identifier: Apache-2.0
"""Compares `train` with transformers on the same model folders and tokens. No test runs this script.

    python transformers_losses.py --train build/cpu/bin/train [--only llama] [--precision fp32 --device cpu ...]

This command makes small random models with transformers and saves each as a folder (config.json, model.safetensors). It
trains each model for 20 steps of AdamW in fp32 with PyTorch and with `train --model FOLDER`, and compares the losses. Then
it loads the weights that `train` saved without a step, after the last step, and in its checkpoint, and compares logits. A
GPT-2 is also written and read in llm.c's format. PyTorch trains in eval mode, so no dropout is applied. The script exits
with 1 if a loss differs by more than --tolerance or if logits differ.

    train --model opt:layers=2,heads=3,channels=48,hidden=72,positions=64 --vocabulary 301 --steps 0 --save FOLDER
    python transformers_losses.py --golden FOLDER --batch 12 --sequence 33

The second command prints [loss, gradient norm] of every step in double, on the tokens of golden_losses.py, for
golden_losses_test.cpp.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers
from transformers.models.llama import modeling_llama

import golden_losses

sys.path.append(str(pathlib.Path(__file__).parent.parent / "programs/train/llmc"))
import write_llmc

GPT2 = dict(n_layer=2, n_head=3, n_embd=48, n_positions=64, vocab_size=301)
OPT = dict(num_hidden_layers=2, num_attention_heads=2, hidden_size=40, ffn_dim=72, max_position_embeddings=50,
           vocab_size=131, word_embed_proj_dim=40)
LLAMA = dict(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, hidden_size=64, intermediate_size=88,
             max_position_embeddings=64, vocab_size=259)
ROPE3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
             original_max_position_embeddings=16)

# name: configuration, sequence, options of save_pretrained
CASES = {
    "gpt2": (transformers.GPT2Config(**GPT2), 33, {}),
    "gpt2-parts": (transformers.GPT2Config(**GPT2), 7, {"max_shard_size": "30KB"}),
    "opt": (transformers.OPTConfig(**OPT), 19, {}),
    "opt-heads-of-80": (transformers.OPTConfig(**{**OPT, "hidden_size": 160, "word_embed_proj_dim": 160}), 33, {}),
    "llama": (transformers.LlamaConfig(**LLAMA), 21, {}),
    "llama-tied": (transformers.LlamaConfig(**LLAMA, tie_word_embeddings=True, rms_norm_eps=1e-5), 64, {}),
    "llama-heads-of-80": (transformers.LlamaConfig(**{**LLAMA, "hidden_size": 320, "num_key_value_heads": 1}), 17,
                          {"max_shard_size": "200KB"}),
    "llama-3": (transformers.LlamaConfig(**LLAMA, rope_parameters=ROPE3), 61, {}),
    "llama-padding": (transformers.LlamaConfig(**LLAMA, pad_token_id=7), 5, {}),
}


def make(name, folder):
    torch.manual_seed(sum(name.encode()))
    config, sequence, options = CASES[name]
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():  # biases and gains that differ from their initial values
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder, **options)
    return model.eval(), sequence


def batches(tokens, sequence, batch, steps):
    samples = (len(tokens) - 1) // sequence
    for step in range(steps):
        rows = []
        for position in range(step * batch, (step + 1) * batch):
            first = position % samples * sequence
            rows.append(tokens[first:first + sequence + 1].tolist())
        yield torch.tensor(rows)


def records_of(model, tokens, sequence, options, clip=1.0):
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}], lr=1e-3,
        betas=(0.9, 0.999), eps=1e-8)
    records = []
    for rows in batches(tokens, sequence, options.batch, options.steps):
        logits = model(rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        records.append([loss.item(), norm.item()])
    return records


def golden(options):
    def norm_in_double(self, x):  # transformers computes this in fp32 for every dtype
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)

    modeling_llama.LlamaRMSNorm.forward = norm_in_double
    model = transformers.AutoModelForCausalLM.from_pretrained(options.golden, attn_implementation="sdpa",
                                                              dtype=torch.float64).eval()
    tokens = numpy.array(golden_losses.formula_tokens(2000, model.config.vocab_size))
    return records_of(model, tokens, options.sequence, options, clip=0.7)


def run_train(options, folder, *more):
    command = [options.train, "--quiet", "--model", str(folder), "--batch", str(options.batch), *options.more, *more]
    subprocess.run([str(part) for part in command], check=True)


def logits_of(folder, rows):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager",
                                                                    output_loading_info=True)
    unfit = {key: value for key, value in info.items() if value}
    assert not unfit, f"{folder}: {unfit}"
    with torch.no_grad():
        return model.eval()(rows).logits


def read_from_llmc(model, work, options):
    """Returns the logits of a GPT-2 after a round trip through a file of llm.c."""
    state = {key.removeprefix("transformer."): value.numpy() for key, value in model.state_dict().items()}
    names = ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")
    layers = [{name: (state[f"h.{layer}.{name}.weight"].T, state[f"h.{layer}.{name}.bias"]) for name in names}
              for layer in range(model.config.n_layer)]
    parts = {"wte": state["wte.weight"], "wpe": state["wpe.weight"], "layers": layers,
             "ln_f": (state["ln_f.weight"], state["ln_f.bias"])}
    rows = -(-model.config.vocab_size // 128) * 128
    write_llmc.write_llmc(work / "llmc.bin", parts, 3, write_llmc.fp32, model.config.n_head, rows)
    run_train(options, work / "llmc.bin", "--sequence", 1, "--steps", 0, "--save", work / "llmc")
    return work / "llmc"


def check(name, work, options):
    folder, start, end = work / name, work / f"{name}-start", work / f"{name}-end"
    model, sequence = make(name, folder)
    tokens = numpy.random.default_rng(1).integers(0, model.config.vocab_size, 1500).astype(numpy.uint16)
    tokens[::11] = min(7, model.config.vocab_size - 1)
    tokens[::13] = 1
    data = work / f"{name}.bin"
    tokens.tofile(data)
    rows = next(batches(tokens, sequence, 3, 1))[:, :-1]
    before = logits_of(folder, rows)

    run_train(options, folder, "--sequence", sequence, "--steps", 0, "--save", start)
    copied = torch.equal(before, logits_of(start, rows))
    if model.config.model_type == "gpt2":
        copied = copied and torch.equal(before, logits_of(read_from_llmc(model, work, options), rows))

    log = work / f"{name}.jsonl"
    run_train(options, folder, "--sequence", sequence, "--steps", options.steps, "--data", data, "--order", "sequential",
              "--learning-rate", 1e-3, "--weight-decay", 0.1, "--clip", 1, "--log", log, "--save", end, "--checkpoint", work / f"{name}-saves",
              "--checkpoint-async", "--checkpoint-every", 7)
    ours = [record["loss"] for record in map(json.loads, log.read_text().splitlines()) if "step" in record]
    theirs = [loss for loss, _ in records_of(model, tokens, sequence, options)]
    worst = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    with torch.no_grad():
        apart = (logits_of(end, rows) - model(rows).logits).abs().max().item()
    saved = sorted((work / f"{name}-saves").glob("step-*"))[-1] / "model"
    copied = copied and torch.equal(logits_of(saved, rows), logits_of(end, rows))
    right = copied and worst <= options.tolerance and apart <= 50 * options.tolerance
    print(f"{name}: losses {theirs[0]:.6f} .. {theirs[-1]:.6f}, largest difference {worst:.1e}; logits of copies "
          f"{'equal' if copied else 'DIFFER'}, after it {apart:.1e} apart{'' if right else '  WRONG'}", flush=True)
    return right


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", help="the program")
    parser.add_argument("--golden", help="print the records of this folder's model instead")
    parser.add_argument("--sequence", type=int, help="of --golden")
    parser.add_argument("--only", default="", help="cases whose names begin so")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--work", type=pathlib.Path, help="keep the folders here")
    parsed, parsed.more = parser.parse_known_args()
    torch.set_num_threads(1)
    if parsed.golden:
        print(json.dumps(golden(parsed)))
        sys.exit()
    with tempfile.TemporaryDirectory() as temporary:
        place = parsed.work or pathlib.Path(temporary)
        place.mkdir(exist_ok=True, parents=True)
        results = [check(name, place, parsed) for name in CASES if name.startswith(parsed.only)]
    sys.exit(0 if all(results) and results else 1)
