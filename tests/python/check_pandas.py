#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the Python blocks of docs/how-to/run-published-comparisons.md with pandas on files of compare.

    python check_pandas.py BUILD WORK

compare trains stages under two offloads with --format flat, in a precision that runs and in one that is refused. plan plans
the same. The unchanged blocks run one after the other in one namespace. The script checks their results: columns and types,
equal rows in JSON and CSV, groups, failed rows, and plans next to measurements.
"""
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy
import pandas as pd
from pandas.api import types

build, work = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
page = Path(__file__).resolve().parents[2] / "docs/how-to/run-published-comparisons.md"
blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
assert len(blocks) == 4, f"{page} has {len(blocks)} blocks of Python"

NAME = "zero_comparison_20231120_143022"
MEASURED = ["throughput_tokens_per_sec", "gpu_peak_gb", "memory_peak_gb", "gpu_allocated_gb", "memory_allocated_gb",
            "cpu_used_gb", "cpu_memory_gb", "avg_step_time_ms"]
FIRST = ["stage", "strategy", *MEASURED, "success", "error"]


def trained(stages):
    """Runs compare, plan and the blocks on these stages. Returns the blocks' namespace and compare's document."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    os.chdir(work)
    Path("text.txt").write_text("The quick brown fox jumps over the lazy dog.\n" * 200)
    shape = ["--model", "layers=2,heads=2,channels=32", "--batch-size", "2", "--seq-length", "16", "--ranks", "2",
             "--stages", *stages, "--offloads", "none", "cpu_full", "--precisions", "fp32", "tf32"]
    run = lambda *words: subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    run(build / "bin/compare", *shape, "--defaults", "stage-sweep", "--data", "text.txt", "--num-steps", "3",
        "--warmup-steps", "1", "--output-dir", "results")
    run(build / "bin/plan", *shape, "--no-search", "--json", "plan.json")
    for file in Path("results").glob("zero_comparison_*.*"):
        file.rename(f"results/{NAME}{file.suffix}")
    document = json.loads(next(Path("results").glob("compare_*.json")).read_text())
    names = {}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)
    return names, document


for stages in (["0", "1", "2", "3"], ["dp", "0", "3"]):
    names, document = trained(stages)
    df, same, ran, both = (names[name] for name in ("df", "same", "ran", "both"))
    rows = pd.DataFrame(document["rows"])

    # Columns: the published keys come first, there are no lists, each column has one type, and the CSV is equal.
    assert list(df.columns[:len(FIRST)]) == FIRST, list(df.columns)
    assert list(df.columns) == list(same.columns)
    assert not df.map(lambda value: isinstance(value, (list, dict))).any().any()
    assert len(df) == len(same) == len(rows) == 4 * len(stages)
    for frame in (df, same):
        assert frame["success"].dtype == bool
        for key in MEASURED:
            assert frame[key].dtype == numpy.float64, (key, frame[key].dtype)
        for key in ("strategy", "experiment", "status", "error"):
            assert types.is_string_dtype(frame[key].dropna()), (key, frame[key].dtype)
        assert types.is_integer_dtype(frame["stage"]) == ("dp" not in stages), frame["stage"].dtype
    for column in same.columns.drop("efficiency"):  # the first block computes this column again
        absent = df[column].isna()
        assert (absent == same[column].isna()).all(), column
        left, right = df[column][~absent], same[column][~absent]
        if types.is_bool_dtype(right.infer_objects()):  # also if some values are absent
            left, right = left.astype(bool), right.astype(bool)
        elif not types.is_numeric_dtype(right):
            left, right = left.astype(str), right.astype(str)
        assert (left == right).all(), (column, left, right)

    # The first block divides by 10^9 bytes, and the file by 2^30 bytes. Rows of one program share a value in the file.
    own = ran[ran["same_program_as"].isna() & ~ran["experiment"].isin(ran["same_program_as"].dropna())]
    filed = same.set_index("experiment").loc[own["experiment"], "efficiency"].to_numpy()
    assert numpy.allclose(own["efficiency"].to_numpy() * 2**30 / 1e9, filed)

    # A failed row has a reason and no figures. The other rows have all figures and no error.
    failed = df[~df["success"]]
    assert (failed["precision"] == "tf32").all() and len(failed) == 2 * len(stages)
    assert failed[MEASURED].isna().all().all() and failed["error"].str.contains("tensor cores").all()
    assert (failed["status"] == "refused").all()
    assert (ran["precision"] == "fp32").all() and ran[MEASURED].notna().all().all() and ran["error"].isna().all()

    # Groups: one for each stage and strategy, with the document's figures.
    groups = ran.groupby(["stage", "strategy"])["throughput_tokens_per_sec"]
    assert len(groups) == 2 * len(stages) and (groups.size() == 1).all()
    wanted = rows[rows["status"] == "ok"].groupby(["stage", "offload"])["median_tokens_per_sec"].mean()
    names_of = lambda index: [(str(stage), strategy) for stage, strategy in index]  # with dp, stages are texts
    assert (groups.mean().to_numpy() == wanted.to_numpy()).all() and names_of(groups.mean().index) == names_of(wanted.index)
    best = df.loc[df["efficiency"].idxmax()]
    assert best["success"] and best["efficiency"] == (ran["throughput_tokens_per_sec"] / ran["gpu_peak_gb"]).max()

    # Plans: each row occurs once. It is refused in both files, or its peak equals the plan.
    assert len(both) == len(df)
    assert set(zip(both["status"], both["status_planned"])) == {("ok", "fits"), ("refused", "refused")}
    ok = both[both["success"]]
    assert (ok["peak_gpu_mem_mb"] == ok["planned_gpu_mem_mb"]).all() and (ok["all_ranks_bytes"] > 0).all()
print(f"{len(blocks)} blocks of {page.name}, pandas {pd.__version__}")
