# SPDX-License-Identifier: Apache-2.0
# Holds prepare against the PyPI packages on a large text of many languages and emoji: ids, and speed in
# processor time.
# In a virtual environment: pip install tokenizers==0.23.3 sentencepiece==0.2.3, then:
#   python tests/text/oracle.py build/cpu/bin/prepare WORK [MEGABYTES]
# Ends with 1 when an id differs, or when prepare makes less than 0.8 of a package's speed.
import array, json, os, random, resource, subprocess, sys, time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import sentencepiece
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_fixtures

prepare, work, megabytes = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 100
os.makedirs(work, exist_ok=True)
SCRIPTS = [(0x61, 0x7a), (0xe0, 0xff), (0x3b1, 0x3c9), (0x430, 0x44f), (0x561, 0x586), (0x5d0, 0x5ea), (0x627, 0x64a), (0x905, 0x939),
           (0xe01, 0xe3a), (0x10d0, 0x10f0), (0x3041, 0x3096), (0x30a1, 0x30fa), (0x4e00, 0x9fa5), (0xac00, 0xd7a3)]
EMOJI = [0x1f600, 0x1f64f, 0x1f680, 0x1f6c5, 0x2764, 0x1f1e6, 0x1f1ff, 0x1f3fb, 0x1f3ff, 0x200d, 0xfe0f]


def corpus(size, seed):
    """Words of a Zipf-like vocabulary in each script, numbers, code, emoji, odd white space, and any character."""
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


def ours(folder, path, name, extra=()):
    out = os.path.join(work, name + ".bin")
    for leftover in (out + ".state", out + ".partial"):
        if os.path.exists(leftover): os.remove(leftover)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([prepare, path, "--tokenizer", folder, "--output", out, "--ids", "uint32", "--end-of-text", "none", "-q", *extra], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)  # of all its threads: other programs do not disturb it
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    ids = array.array("I")
    with open(out, "rb") as file:
        file.seek(1024)
        ids.frombytes(file.read())
    return ids, seconds


def main():
    text = corpus(megabytes * 1000000, 1)
    data = bytearray(text.encode())
    r = random.Random(2)
    for _ in range(len(data) // 20000): data[r.randrange(len(data))] = r.randrange(256)  # invalid bytes
    path = os.path.join(work, "corpus.txt")
    with open(path, "wb") as file: file.write(data)
    text = bytes(data).decode("utf-8", "replace")
    sample, failed = text[: 3000000], False
    for kind in ("gpt2", "llama3", "llama2", "sentencepiece"):
        folder = os.path.join(work, kind)
        os.makedirs(folder, exist_ok=True)
        if kind == "sentencepiece":
            with open(os.path.join(work, "sample.txt"), "w", newline="") as file: file.write("\n".join(sample.splitlines()))
            sentencepiece.SentencePieceTrainer.train(input=os.path.join(work, "sample.txt"), model_prefix=os.path.join(folder, "tokenizer"), vocab_size=16000, model_type="bpe",
                byte_fallback=True, normalization_rule_name="identity", split_digits=True, remove_extra_whitespaces=False, allow_whitespace_only_pieces=True,
                character_coverage=0.995, minloglevel=2, num_threads=1)
            json.dump({"add_bos_token": False}, open(os.path.join(folder, "tokenizer_config.json"), "w"))
            processor = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "tokenizer.model"))
            encode = lambda t: processor.encode(t)
        else:
            tokenizer = train(kind, sample)
            tokenizer.save(os.path.join(folder, "tokenizer.json"))
            encode = lambda t: tokenizer.encode(t).ids
        # The package gets the text in parts that both may cut: one call for all would time its memory.
        size, parts = 200000, []
        at = 0
        while at < len(text):
            end = min(len(text), at + size)
            while end < len(text) and not (text[end] == " " and text[end - 1].isascii() and text[end - 1].isalpha() and text[end + 1 : end + 2].isalpha() and text[end + 1 : end + 2].isascii()): end += 1
            parts.append(text[at:end])
            at = end
        jsonl = os.path.join(work, kind + ".jsonl")
        with open(jsonl, "w") as file:
            for part in parts: file.write(json.dumps({"text": part}, ensure_ascii=False) + "\n")
        start = time.process_time()
        theirs = [encode(part) for part in parts]
        seconds = time.process_time() - start
        got, mine = ours(folder, jsonl, kind, ["--threads", "1"])
        same = got.tolist() == [i for ids in theirs for i in ids]
        # The whole text, whose parts prepare chooses itself; a part of it encoded whole by the package.
        whole, mine_text = ours(folder, path, kind + ".text", ["--threads", "1"])
        head = text[: 4000000]
        expected = encode(head)[:-50]
        same_text = whole[: len(expected)].tolist() == expected
        ok = same and same_text and mine <= seconds / 0.8
        failed |= not ok
        if not same:
            flat = [i for ids in theirs for i in ids]
            first = next((i for i, (a, b) in enumerate(zip(got, flat)) if a != b), min(len(got), len(flat)))
            print("  first differing id at", first, got[first - 3 : first + 5].tolist(), flat[first - 3 : first + 5])
        print(f"{kind:13} {len(data):,} bytes {len(got):,} ids, equal: {same}, as one text: {same_text}; package {len(data) / 1e6 / seconds:.1f} MB/s, "
              f"prepare {len(data) / 1e6 / mine:.1f} MB/s as JSONL, {len(data) / 1e6 / mine_text:.1f} as text MB/s of processor time: {'ok' if ok else 'FAILED'}", flush=True)
    return failed


sys.exit(main())
