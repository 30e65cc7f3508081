# SPDX-License-Identifier: Apache-2.0
"""Writes the test files of this folder: the weights of one small GPT-2 in llm.c's fp32 and bf16 formats and as
safetensors. Needs numpy. The order of tensors is from train_gpt2.py of karpathy/llm.c (write_tensors), not from the
reader under test.

    python write_llmc.py [FOLDER]
"""
import json
import pathlib
import struct
import sys

import numpy

LAYERS, HEADS, CHANNELS, POSITIONS, VOCABULARY, ROWS = 2, 2, 4, 8, 5, 8


def linear(random, out, inner):
    """Makes a weight in the layout of torch.nn.Linear: (out, in)."""
    return values(random, out, inner), values(random, out)


def values(random, *shape):
    """Makes numbers that are exact in bfloat16."""
    return (random.integers(-128, 128, size=shape) / 64.0).astype("<f4")


def make():
    random = numpy.random.default_rng(20240326)
    model = {"wte": values(random, VOCABULARY, CHANNELS), "wpe": values(random, POSITIONS, CHANNELS), "layers": []}
    for _ in range(LAYERS):
        model["layers"].append({
            "ln_1": (values(random, CHANNELS), values(random, CHANNELS)),
            "attn.c_attn": linear(random, 3 * CHANNELS, CHANNELS),
            "attn.c_proj": linear(random, CHANNELS, CHANNELS),
            "ln_2": (values(random, CHANNELS), values(random, CHANNELS)),
            "mlp.c_fc": linear(random, 4 * CHANNELS, CHANNELS),
            "mlp.c_proj": linear(random, CHANNELS, 4 * CHANNELS),
        })
    model["ln_f"] = (values(random, CHANNELS), values(random, CHANNELS))
    return model


def bf16(array):
    """Returns the upper half of each float, which is exact for these numbers."""
    return (array.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()


def fp32(array):
    return array.astype("<f4").tobytes()


def write_llmc(path, model, version, encode, heads=HEADS, rows=ROWS):
    vocabulary, channels = model["wte"].shape
    header = numpy.zeros(256, dtype="<i4")
    header[:8] = 20240326, version, len(model["wpe"]), vocabulary, len(model["layers"]), heads, channels, rows
    padding = numpy.zeros((rows - vocabulary, channels), dtype="<f4")
    with open(path, "wb") as file:
        file.write(header.tobytes())
        file.write(encode(numpy.concatenate([model["wte"], padding])))
        file.write(encode(model["wpe"]))
        for name in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"):
            for part in (0, 1):  # all weights of that name, layer by layer, then all biases
                for layer in model["layers"]:
                    file.write(encode(layer[name][part]))
        file.write(encode(model["ln_f"][0]))
        file.write(encode(model["ln_f"][1]))


def write_safetensors(path, model):
    tensors = {"wte.weight": model["wte"], "wpe.weight": model["wpe"]}
    for number, layer in enumerate(model["layers"]):
        for name, (weight, bias) in layer.items():
            tensors[f"h.{number}.{name}.weight"] = weight.T if weight.ndim == 2 else weight  # Conv1D: (in, out)
            tensors[f"h.{number}.{name}.bias"] = bias
    tensors["ln_f.weight"], tensors["ln_f.bias"] = model["ln_f"]
    header, data = {}, b""
    for name, tensor in tensors.items():
        piece = numpy.ascontiguousarray(tensor).astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    small = make()
    write_llmc(folder / "fp32.bin", small, 3, fp32)
    write_llmc(folder / "bf16.bin", small, 5, bf16)
    write_safetensors(folder / "same.safetensors", small)
