# SPDX-License-Identifier: Apache-2.0
"""Measures PyTorch and DeepSpeed on GPUs, and writes rows for `report`. No build or test uses this script.

    python benchmarks/rivals_torch.py --gpus 1,2 --programs ddp,fsdp2,zero2 --batch 8 --sequence 512 --out rivals.json
    report results rivals.json --html report.html

Each row is a separate run: a GPT-2 with random weights trains on random tokens. The model has fused attention, no dropout
and a tied head of 50304 rows; AdamW is fused, and gradients are clipped to norm 1. The programs are

    eager     PyTorch without parallelism, one GPU     compiled  the same under torch.compile, one GPU
    dp        DataParallel, one process                ddp       DistributedDataParallel, one process for each GPU
    ddp-compiled  DDP under torch.compile              fsdp2     fully_shard of each block and of the model
    zero0 to zero3  DeepSpeed with this stage; needs the package deepspeed
    zero1-cpu to zero3-cpu  the same with the optimizer on the CPU (offload_optimizer)

16-bit formats are autocast over fp32 weights in PyTorch, and DeepSpeed's own formats in DeepSpeed. A step is timed from
one synchronisation of the GPU to the next. A row has the median over the steps of all repeats. train_time_s is the sum
of all timed steps. comm_time_s is the time of NCCL's kernels in a step, the mean over ranks, counted by PyTorch's
profiler in --profiled further steps. Such a kernel also waits for the other ranks, and its time can overlap with
computation. The file has the format of docs/rivals.schema.json. With --append, the rows are added to a file that exists.
"""
import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

SIZES = {  # layers, heads, channels
    "gpt2": (12, 12, 768),
    "gpt2-medium": (24, 16, 1024),
    "gpt2-large": (36, 20, 1280),
    "gpt2-xl": (48, 25, 1600),
}
PROGRAMS = {
    "eager": "PyTorch eager",
    "compiled": "torch.compile",
    "dp": "PyTorch DataParallel",
    "ddp": "PyTorch DDP",
    "ddp-compiled": "PyTorch DDP compiled",
    "fsdp2": "PyTorch FSDP2",
    "zero0": "DeepSpeed",
    "zero1": "DeepSpeed",
    "zero2": "DeepSpeed",
    "zero3": "DeepSpeed",
    "zero1-cpu": "DeepSpeed",
    "zero2-cpu": "DeepSpeed",
    "zero3-cpu": "DeepSpeed",
}
SHARDING = {"dp": "dp", "ddp": "zs0", "ddp-compiled": "zs0", "fsdp2": "zs3"}
SHARDING.update({name: f"zs{name[4]}" for name in PROGRAMS if name.startswith("zero")})
VOCABULARY = 50257  # the tokens of the data
PADDED = 50304  # rows of the embedding: the next multiple of 64, with which cuBLAS is faster


def gpt2(torch, size, positions):
    nn, functional = torch.nn, torch.nn.functional
    layers, heads, channels = SIZES[size]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(channels), nn.LayerNorm(channels)
            self.qkv, self.mix = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
            self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

        def forward(self, x):
            rows, length, _ = x.shape
            q, k, v = (part.view(rows, length, heads, channels // heads).transpose(1, 2)
                       for part in self.qkv(self.first(x)).split(channels, dim=2))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.mix(mixed.transpose(1, 2).reshape(rows, length, channels))
            return x + self.down(functional.gelu(self.up(self.second(x)), approximate="tanh"))

    class Gpt2(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(PADDED, channels), nn.Embedding(positions, channels)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.last, self.head = nn.LayerNorm(channels), nn.Linear(channels, PADDED, bias=False)
            self.head.weight = self.tokens.weight
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, x, y):
            h = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
            for block in self.blocks:
                h = block(h)
            return functional.cross_entropy(self.head(self.last(h)).flatten(0, 1).float(), y.flatten())

    return Gpt2()


def deepspeed_step(torch, options, stage, on_cpu):
    import deepspeed

    config = {
        "train_micro_batch_size_per_gpu": options.batch,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "steps_per_print": 10**9,
        "zero_optimization": {"stage": stage, "overlap_comm": stage > 0, "contiguous_gradients": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.01, "torch_adam": options.torch_adam}},
    }
    if on_cpu:
        config["zero_optimization"]["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if options.precision == "fp16":
        config["fp16"] = {"enabled": True, "initial_scale_power": 12}
    if options.precision == "bf16":
        config["bf16"] = {"enabled": True}
    with deepspeed.zero.Init(config_dict_or_path=config, enabled=stage == 3):
        model = gpt2(torch, options.model, max(options.sequence, 1024))
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)

    def step(x, y):
        loss = engine(x, y)
        engine.backward(loss)
        engine.step()
        return loss

    return step, deepspeed.__version__.strip()


def torch_step(torch, options, program):
    nn = torch.nn
    amp = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(options.precision)
    model = gpt2(torch, options.model, max(options.sequence, 1024)).cuda()
    sharded = program == "fsdp2"
    if sharded:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy(param_dtype=amp, reduce_dtype=amp) if amp else MixedPrecisionPolicy()
        for block in model.blocks:
            fully_shard(block, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
    if program in ("compiled", "ddp-compiled"):
        model = torch.compile(model)
    if program in ("ddp", "ddp-compiled"):
        model = nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()],
                                                    gradient_as_bucket_view=True)
    if program == "dp":
        model = nn.DataParallel(model, device_ids=list(range(options.world)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    scaler = torch.amp.GradScaler(enabled=options.precision == "fp16" and not sharded)

    def step(x, y):
        with torch.autocast("cuda", amp, enabled=amp is not None and not sharded):
            loss = model(x, y)
        loss = loss.mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step, "PyTorch " + torch.__version__.split("+")[0]


def measure(options):
    """Trains in this process, which is one rank. Rank 0 writes the measurements to options.result."""
    import torch

    program = options.measure
    rank = int(os.environ.get("RANK", 0))
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high" if options.precision == "tf32" else "highest")
    if program in ("ddp", "ddp-compiled", "fsdp2"):
        torch.distributed.init_process_group("nccl")
    if program.startswith("zero"):
        step, version = deepspeed_step(torch, options, int(program[4]), program.endswith("-cpu"))
    else:
        step, version = torch_step(torch, options, program)
    rows = options.batch * (options.world if program == "dp" else 1)
    batches = [torch.randint(0, VOCABULARY, (2, rows, options.sequence), device="cuda") for _ in range(4)]
    times, repeats = [], []
    for repeat in range(options.repeat):
        own = []
        for index in range(options.warmup + options.steps):
            torch.cuda.synchronize()
            start = time.perf_counter()
            step(*batches[index % 4])
            torch.cuda.synchronize()
            if index >= options.warmup:
                own.append(time.perf_counter() - start)
        times += own
        repeats.append(own)
    peak = max(torch.cuda.max_memory_allocated(device) for device in range(options.world if program == "dp" else 1)) \
        if program == "dp" else torch.cuda.max_memory_allocated()
    communication = None
    if options.world > 1 and options.profiled > 0:
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as record:
            for index in range(options.profiled):
                step(*batches[index % 4])
            torch.cuda.synchronize()
        kernels = [event for event in record.events() if "nccl" in event.name.lower()]
        if kernels:
            communication = sum(event.device_time_total for event in kernels) * 1e-6 / options.profiled
        if program == "dp" and communication:  # one process has the kernels of all GPUs
            communication /= options.world
        elif torch.distributed.is_initialized():
            mean = torch.tensor([communication or 0.0], device="cuda")
            torch.distributed.all_reduce(mean, torch.distributed.ReduceOp.AVG)
            communication = mean.item() or None
    if rank == 0:
        tokens = options.batch * options.sequence * options.world
        rates = [tokens / statistics.median(own) for own in repeats]
        with open(options.result, "w") as file:
            json.dump({
                "version": version,
                "median_tokens_per_sec": round(tokens / statistics.median(times), 1),
                "std_tokens_per_sec": round(statistics.stdev(rates), 1) if len(rates) > 1 else None,
                "spread_pct": round(100 * statistics.stdev(times) / statistics.mean(times), 3),
                "peak_gpu_mem_mb": round(peak / 2**20, 1),
                "train_time_s": round(sum(times), 6),
                "comm_time_s": None if communication is None else round(communication, 6),
                "machine": f"{options.world} x " * (options.world > 1) + torch.cuda.get_device_name() +
                           f", CUDA {torch.version.cuda}",
            }, file)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def row_of(options, program, world):
    """Runs one row in separate processes. Returns the row. If the row fails, prints the reason and returns None."""
    with tempfile.TemporaryDirectory() as folder:
        result = os.path.join(folder, "row.json")
        own = [os.path.abspath(__file__), "--measure", program, "--result", result, "--world", str(world)]
        for name in ("model", "precision", "batch", "sequence", "steps", "warmup", "repeat", "profiled"):
            own += ["--" + name, str(getattr(options, name))]
        if options.torch_adam:
            own.append("--torch-adam")
        launcher = [sys.executable]
        if program not in ("eager", "compiled", "dp"):
            launcher += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
        try:
            ended = subprocess.run(launcher + own, capture_output=True, text=True, timeout=options.timeout)
            output, code = ended.stdout + ended.stderr, ended.returncode
        except subprocess.TimeoutExpired:
            output, code = f"no end after {options.timeout} s", 1
        if code != 0 or not os.path.exists(result):
            lines = [line for line in output.splitlines() if "Error" in line] or output.splitlines() or ["no output"]
            print(f"{program:13} {world} GPUs: no row: {lines[0 if 'Error' in lines[0] else -1][:300]}", flush=True)
            if options.errors:
                print(output[-4000:], flush=True)
            return None
        with open(result) as file:
            measured = json.load(file)
    row = {"program": PROGRAMS[program], "version": measured.pop("version"), "date": datetime.date.today().isoformat(),
           "model": options.model, "precision": options.precision, "sharding": SHARDING.get(program),
           "offload": "cpu_optimizer" if program.endswith("-cpu") else "none", "batch": options.batch,
           "sequence": options.sequence, "world": world, "repeats": options.repeat, "steps": options.steps + options.warmup,
           "warmup": options.warmup}
    row.update(measured)
    print(f"{program:13} {world} GPUs {options.precision} {options.batch}x{options.sequence}: "
          f"{row['median_tokens_per_sec']:.0f} tokens/s, spread {row['spread_pct']} %, "
          f"peak {row['peak_gpu_mem_mb']:.0f} MB, collectives {row['comm_time_s']} s a step", flush=True)
    return {key: value for key, value in row.items() if value is not None}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default="dp,ddp,fsdp2,zero2,zero3", help="comma-separated, default %(default)s")
    parser.add_argument("--gpus", default="1", help="comma-separated numbers of GPUs, default %(default)s")
    parser.add_argument("--model", default="gpt2", choices=list(SIZES))
    parser.add_argument("--precision", default="fp32", choices=["fp32", "tf32", "bf16", "fp16"])
    def positive(text):
        if not text.isdecimal() or int(text) == 0:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least 1")
        return int(text)

    for name, value in dict(batch=8, sequence=512, steps=50, warmup=10, repeat=3, profiled=3, timeout=300).items():
        parser.add_argument("--" + name, type=int if name in ("warmup", "profiled") else positive, default=value,
                            help="default %(default)s")
    parser.add_argument("--torch-adam", action="store_true",
                        help="let DeepSpeed use PyTorch's AdamW instead of its own, which it compiles with nvcc")
    parser.add_argument("--out", default="rivals.json", help="the file of rows, default %(default)s")
    parser.add_argument("--append", action="store_true", help="add the rows to the file")
    parser.add_argument("--errors", action="store_true", help="print the output of a row that fails")
    for name in ("measure", "result"):
        parser.add_argument("--" + name, help=argparse.SUPPRESS)
    parser.add_argument("--world", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options)
        return
    programs = options.programs.split(",")
    for program in programs:
        if program not in PROGRAMS:
            parser.error(f"--programs has '{program}'; the programs are {', '.join(PROGRAMS)}")
    worlds = []
    for count in options.gpus.split(","):
        if not count.isdecimal() or int(count) == 0:
            parser.error(f"--gpus has '{count}', which is not a number of GPUs")
        worlds.append(int(count))
    rows = {"schema_version": 1, "rivals": []}
    if options.append:
        try:
            with open(options.out) as file:
                rows = json.load(file)
            if not isinstance(rows["rivals"], list):
                raise KeyError("rivals")
        except (OSError, ValueError, KeyError, TypeError) as error:
            parser.error(f"--append cannot read rows from {options.out}: {error!r}")
    elif os.path.exists(options.out):
        parser.error(f"{options.out} exists; add to it with --append, or name another file")
    for world in worlds:
        for program in programs:
            if world > 1 and program in ("eager", "compiled"):
                continue
            row = row_of(options, program, world)
            if row:
                rows["rivals"].append(row)
                with open(options.out, "w") as file:
                    json.dump(rows, file, indent=1)
                    file.write("\n")
    if not rows["rivals"]:
        sys.exit("no row was measured; --errors shows the output of each")


if __name__ == "__main__":
    main()
