# SPDX-License-Identifier: Apache-2.0
# python check_tensorboard.py BUILD WORK: reads the event files of train --tensorboard with TensorBoard and compares them with
# --log.
import json, pathlib, shutil, struct, subprocess, sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

build, work = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
board, log, text = work / "board", work / "log.jsonl", work / "text.txt"
shutil.rmtree(board, ignore_errors=True)
text.write_text("the quick brown fox jumps over the lazy dog\n" * 100)
subprocess.run([build / "bin/train", "--model", "layers=1,heads=2,channels=16", "--data", text, "--sequence", "16", "--batch", "2",
                "--steps", "20", "--validation", text, "--validate-every", "5", "--tensorboard", board, "--log", log, "--quiet"], check=True)
events = EventAccumulator(str(board), size_guidance={"scalars": 0, "tensors": 0}).Reload()
steps = [entry for entry in map(json.loads, log.read_text().splitlines()) if "loss" in entry]
failures = []


def expect(what, got, wanted):
    if got != wanted: failures.append(f"{what}: {got}, expected {wanted}")


def single(value):  # scalars in event files have 32 bits
    return struct.unpack("f", struct.pack("f", value))[0]


expect("steps in the log", len(steps), 20)
for tag, key in (("train/loss", "loss"), ("train/grad_norm", "grad_norm"), ("train/learning_rate", "lr")):
    scalars = events.Scalars(tag) if tag in events.Tags()["scalars"] else []
    expect(f"steps of {tag}", [scalar.step for scalar in scalars], [entry["step"] for entry in steps])
    expect(tag, [scalar.value for scalar in scalars], [single(entry[key]) for entry in steps])
recipe = [tag for tag in events.Tags()["tensors"] if tag.startswith("recipe")]
expect("texts", len(recipe), 1)
if recipe and b"| setting | value |" not in events.Tensors(recipe[0])[0].tensor_proto.string_val[0]:
    failures.append("the recipe is no table")
print("\n".join(failures) or f"{len(steps)} steps, {len(events.Tags()['scalars'])} scalars, {len(recipe)} text: as in the log")
sys.exit(bool(failures))
