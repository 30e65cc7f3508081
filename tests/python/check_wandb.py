#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the Python blocks of docs/how-to/weights-and-biases.md offline and reads the recorded runs back.

    python check_wandb.py BUILD WORK

The recorded values of train must equal its log, and the ones of compare must equal its JSON file. wandb has no public reader
of its .wandb files, so this script reads their records (a LevelDB log of protobuf messages) itself.
"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

build, work = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
page = Path(__file__).resolve().parents[2] / "docs/how-to/weights-and-biases.md"
blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
assert len(blocks) == 2, f"{page} has {len(blocks)} blocks of Python"

shutil.rmtree(work, ignore_errors=True)
work.mkdir(parents=True)
os.chdir(work)
os.environ.update(WANDB_SILENT="true", WANDB_CONFIG_DIR=str(work), WANDB_CACHE_DIR=str(work), WANDB_DATA_DIR=str(work))
import wandb
from wandb.proto import wandb_internal_pb2


def records(path):
    """Yields the protobuf messages of a .wandb file."""
    data, at, message = path.read_bytes(), 7, b""  # 7 bytes: ":W&B", a magic number and a version
    assert data[:4] == b":W&B", path
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:  # the end of a block is padded
            at += left
            continue
        size, kind = struct.unpack("<4xHB", data[at:at + 7])
        message += data[at + 7:at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a whole message, or the last part of one
            yield wandb_internal_pb2.Record.FromString(message)
            message = b""


def recorded(path):
    """Returns the name of a run and its history: a dictionary for each call of run.log."""
    name, history = "", []
    for record in records(path):
        if record.WhichOneof("record_type") == "run":
            name = record.run.display_name or name
        elif record.WhichOneof("record_type") == "history":
            history.append({"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item})
    return name, history


def run(block):
    """Runs a block of the page in a process, since wandb completes its files when the process ends. Returns the records of W&B:
    a history for each name of a run."""
    shutil.rmtree("wandb", ignore_errors=True)
    subprocess.run([sys.executable, "-c", block], check=True)
    return dict(recorded(path) for path in sorted(Path("wandb").glob("offline-run-*/*.wandb")))


def single(value):  # scalars in event files have 32 bits
    return struct.unpack("f", struct.pack("f", value))[0]


Path("text.txt").write_text("The quick brown fox jumps over the lazy dog.\n" * 200)
shape = ["--model", "layers=1,heads=2,channels=16", "--data", "text.txt", "--sequence", "16", "--batch", "2"]
start = lambda program, *words: subprocess.run([build / "bin" / program, *shape, *words], check=True, stdout=subprocess.DEVNULL)
start("train", "--steps", "20", "--tensorboard", "runs/a", "--log", "log.jsonl")
start("compare", "--steps", "3", "--ranks", "2", "--stages", "0,3", "--precisions", "fp32,tf32", "--offloads", "none",
      "--output-dir", "results")

(history,) = run(blocks[0]).values()
history = {row["_step"]: row for row in history}
steps = [line for line in map(json.loads, Path("log.jsonl").read_text().splitlines()) if "loss" in line]
assert len(steps) == 20
for line in steps:
    for tag, key in (("train/loss", "loss"), ("train/grad_norm", "grad_norm"), ("train/learning_rate", "lr")):
        assert history[line["step"]][tag] == single(line[key]), (tag, line, history[line["step"]])

rows = json.loads(Path("results/compare.json").read_text())["rows"]
runs = run(blocks[1])
assert len(rows) == 4 and sorted(runs) == sorted(row["experiment"] for row in rows), list(runs)
for row in rows:
    (values,) = runs[row["experiment"]]
    for key in ("median_tokens_per_sec", "peak_gpu_mem_mb", "comm_bytes_per_step"):
        assert values.get(key) == row[key], (key, values.get(key), row[key])
print(f"{len(blocks)} blocks of {page.name}, wandb {wandb.__version__}: {len(steps)} steps and {len(rows)} rows")
