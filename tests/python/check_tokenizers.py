# SPDX-License-Identifier: Apache-2.0
# python check_tokenizers.py BUILD WORK [MEGABYTES]: compares prepare with the PyPI packages tokenizers and sentencepiece on a
# generated text of many languages and emoji. Compares ids, and speed in processor time, alternating part by part. Then checks
# for equal bytes on 1, 2 and 4 threads and after kills, and for memory that does not grow with the text.
# Exits with 1 if something differs, or if prepare has less than 0.8 of a package's speed.
import array, json, os, random, shutil, signal, subprocess, sys, time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import sentencepiece
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../text"))
import make_fixtures

prepare, work, megabytes = os.path.join(sys.argv[1], "bin/prepare"), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 20
os.makedirs(work, exist_ok=True)
SCRIPTS = [(0x61, 0x7a), (0xe0, 0xff), (0x3b1, 0x3c9), (0x430, 0x44f), (0x561, 0x586), (0x5d0, 0x5ea), (0x627, 0x64a), (0x905, 0x939),
           (0xe01, 0xe3a), (0x10d0, 0x10f0), (0x3041, 0x3096), (0x30a1, 0x30fa), (0x4e00, 0x9fa5), (0xac00, 0xd7a3)]
EMOJI = [0x1f600, 0x1f64f, 0x1f680, 0x1f6c5, 0x2764, 0x1f1e6, 0x1f1ff, 0x1f3fb, 0x1f3ff, 0x200d, 0xfe0f]


def corpus(size, seed):
    """Generates words of a Zipf-like vocabulary in each script, numbers, code, emoji, odd white space and random characters."""
    r = random.Random(seed)
    lexicons = []
    for low, high in SCRIPTS:
        count = 30000 if low == 0x61 else 4000
        lexicons.append(["".join(chr(min(high, low + int(r.paretovariate(1.1)) - 1) if low == 0x4e00 else r.randint(low, high)) for _ in range(1 + int(r.gammavariate(3, 1.2)))) for _ in range(count)])
    out, total, n = [], 0, 0
    while total < size:
        script = 0 if r.random() < 0.5 else r.randrange(len(SCRIPTS))
        words = lexicons[script]
        line = []
        for _ in range(r.randint(3, 40)):
            word = words[min(int(r.paretovariate(0.6)) - 1, len(words) - 1)]
            kind = r.random()
            if kind < 0.03: word = str(r.randrange(10 ** r.randint(1, 9)))
            elif kind < 0.06: word += r.choice(["'s", "'t", "'re", "'LL", ",", ".", "!", "?", "...", " -", ";", "\u3002", "\uff0c"])
            elif kind < 0.07: word = "".join(chr(r.choice(EMOJI) if r.random() < .5 else r.randint(0x1f600, 0x1f64f)) for _ in range(r.randint(1, 6)))
            elif kind < 0.075: word = "".join(chr(c) for c in (r.randrange(0x20, 0x30000) for _ in range(r.randint(1, 8))) if not 0xd800 <= c < 0xe000)
            elif kind < 0.085: word = r.choice(["\u00a0", "\u2003", "\t", "  ", "   ", "\u180e", "\u0085", "\u200b", "\r"]) + word
            elif kind < 0.10: word = r.choice(["e\u0301", "for (int i = 0; i < n; ++i) {", "x += y[i];", "a_b_c", "<html>", "https://example.org/a?b=c", "camelCaseWord"])
            line.append(word)
        text = ("" if script in (10, 11, 12) else " ").join(line) + r.choice(["\n", "\n", "\n\n", ".\n", "\r\n", " \n"])
        n += 1
        out.append(text)
        total += len(text.encode())
    return "".join(out)


def train(kind, sample):
    llama3 = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(make_fixtures.LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    lines = sample.splitlines(keepends=True)
    if kind == "llama2":
        t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
        t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
        special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
        t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=16000, special_tokens=special, limit_alphabet=3000, show_progress=False))
        d = json.loads(t.to_str())
        d["pre_tokenizer"], d["added_tokens"] = None, d["added_tokens"][:3]
        return Tokenizer.from_str(json.dumps(d))
    t = Tokenizer(models.BPE(ignore_merges=kind == "llama3"))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False) if kind == "gpt2" else llama3
    t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=30000, special_tokens=["<|endoftext|>"], show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def command(folder, inputs, name, *more):
    return [prepare, *inputs, "--tokenizer", folder, "--output", os.path.join(work, name + ".bin"), "--ids", "uint32", "--end-of-text", "none", "-q", *more]


def ours(folder, inputs, name, *more):
    """Runs prepare. Returns the file of ids, seconds of processor time, and peak memory in MiB."""
    out = os.path.join(work, name + ".bin")
    for leftover in (out + ".state", out + ".partial"):
        if os.path.exists(leftover) and "--resume" not in more: os.remove(leftover)
    # A small process starts prepare, since a parent's peak memory counts as its child's. The processor time of all threads is
    # independent of other programs.
    measure = ("import os, sys; child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ); _, status, used = os.wait4(child, 0); "
               "print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024); sys.exit(os.waitstatus_to_exitcode(status))")
    process = subprocess.run([sys.executable, "-S", "-c", measure, *command(folder, inputs, name, *more)], check=True, stdout=subprocess.PIPE, text=True)
    return out, *map(float, process.stdout.split())


def killed(folder, path, name, times=3):
    """Kills and resumes prepare several times. Returns its output and the number of kills."""
    out = os.path.join(work, name + ".bin")
    for leftover in (out + ".state", out + ".partial"):
        if os.path.exists(leftover): os.remove(leftover)
    kills = 0
    for _ in range(times):
        process = subprocess.Popen(command(folder, [path], name, "--threads", "2", "--save-every", "0", *(["--resume"] if kills else [])))
        began = os.path.getmtime(out + ".state") if kills else 0
        while process.poll() is None and (not os.path.exists(out + ".state") or os.path.getmtime(out + ".state") == began): time.sleep(0.01)
        time.sleep(0.2)
        process.send_signal(signal.SIGKILL)
        if process.wait() == 0: break
        kills += 1
    return ours(folder, [path], name, "--threads", "2", *(["--resume"] if kills else []))[0], kills


def bytes_in(path):
    with open(path, "rb") as file: return file.read()[1024:]


def ids_of(data):
    ids = array.array("I")
    ids.frombytes(data)
    return ids.tolist()


def parts_of(text, size=200000):
    """Splits the text where both sides may split. One call of a package for the whole text would time its memory."""
    parts, at = [], 0
    while at < len(text):
        end = min(len(text), at + size)
        while end < len(text) and not (text[end] == " " and text[end - 1].isascii() and text[end - 1].isalpha() and text[end + 1 : end + 2].isalpha() and text[end + 1 : end + 2].isascii()): end += 1
        parts.append(text[at:end])
        at = end
    return parts


def package(kind, folder, sample):
    """Trains a tokenizer into a folder. Returns the package's function from text to ids."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    if kind != "sentencepiece":
        tokenizer = train(kind, sample)
        tokenizer.save(os.path.join(folder, "tokenizer.json"))
        return lambda text: tokenizer.encode(text).ids
    with open(os.path.join(work, "sample.txt"), "w", newline="") as file: file.write("\n".join(sample.splitlines()))
    sentencepiece.SentencePieceTrainer.train(input=os.path.join(work, "sample.txt"), model_prefix=os.path.join(folder, "tokenizer"), vocab_size=16000, model_type="bpe",
        byte_fallback=True, normalization_rule_name="identity", split_digits=True, remove_extra_whitespaces=False, allow_whitespace_only_pieces=True,
        character_coverage=0.995, minloglevel=2, num_threads=1)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as file: json.dump({"add_bos_token": False}, file)
    processor = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "tokenizer.model"))
    return processor.encode


def main():
    data = bytearray(corpus(megabytes * 1000000, 1).encode())
    r = random.Random(2)
    for _ in range(len(data) // 20000): data[r.randrange(len(data))] = r.randrange(256)  # invalid bytes
    path, short = os.path.join(work, "corpus.txt"), os.path.join(work, "tenth.txt")
    with open(path, "wb") as file: file.write(data)
    with open(short, "wb") as file: file.write(data[: len(data) // 10])
    text = bytes(data).decode("utf-8", "replace")
    parts, failures = parts_of(text), []
    for kind in ("gpt2", "llama3", "llama2", "sentencepiece"):
        folder = os.path.join(work, kind)
        encode = package(kind, folder, text[:3000000])
        jsonl, seconds, mine, same, count = os.path.join(work, "part.jsonl"), 0.0, 0.0, True, 0
        turn = max(1, len(parts) // 4)
        for at in range(0, len(parts), turn):
            with open(jsonl, "w") as file:
                for part in parts[at : at + turn]: file.write(json.dumps({"text": part}, ensure_ascii=False) + "\n")
            start = time.process_time()
            theirs = [encode(part) for part in parts[at : at + turn]]
            seconds += time.process_time() - start
            theirs = [id for ids in theirs for id in ids]
            got, used, _ = ours(folder, [jsonl], kind, "--threads", "1")
            mine += used
            count += len(theirs)
            if (got := ids_of(bytes_in(got))) != theirs:
                same = False
                first = next((i for i, (a, b) in enumerate(zip(got, theirs)) if a != b), min(len(got), len(theirs)))
                print("  first differing id at", first, "from part", at, "on:", got[first - 3 : first + 5], theirs[first - 3 : first + 5])
        # prepare splits the whole text itself. The package encodes the beginning of the text in one call.
        one, mine_text, _ = ours(folder, [path], kind, "--threads", "1")
        one, expected = bytes_in(one), encode(text[: 4000000])[:-50]
        checks = {"ids": same, "ids as one text": ids_of(one[: 4 * len(expected)]) == expected, "speed": mine <= seconds / 0.8}
        checks["4 threads"] = bytes_in(ours(folder, [path], kind, "--threads", "4")[0]) == one
        two, _, memory = ours(folder, [path], kind, "--threads", "2")
        checks["2 threads"] = bytes_in(two) == one
        resumed, kills = killed(folder, path, kind)
        checks["killed"] = bytes_in(resumed) == one and kills > 0
        tenth, fourfold = ours(folder, [short], kind, "--threads", "2")[2], ours(folder, [path] * 4, kind, "--threads", "2")[2]
        checks["memory"] = fourfold < memory * 1.2 + 8  # a tenth of the text does not fill the word cache
        wrong = [name for name, ok in checks.items() if not ok]
        failures += [f"{kind}: {name}" for name in wrong]
        print(f"{kind:13} {len(data):,} bytes, {count:,} ids; package {len(data) / 1e6 / seconds:.2f} MB/s, prepare {len(data) / 1e6 / mine:.2f} as JSONL ({seconds / mine:.2f}), "
              f"{len(data) / 1e6 / mine_text:.2f} as text, in MB/s of processor time; killed {kills} times; peak of {len(data) // 10:,}, {len(data):,} and {4 * len(data):,} bytes on 2 threads: "
              f"{tenth:.0f}, {memory:.0f}, {fourfold:.0f} MiB: {'failed: ' + ', '.join(wrong) if wrong else 'ok'}", flush=True)
    return bool(failures)


sys.exit(main())
