# SPDX-License-Identifier: Apache-2.0
# Trains the small tokenizers of this folder and writes the ids that the PyPI packages encode with them. In a virtual
# environment: pip install tokenizers==0.23.3 sentencepiece==0.2.3, then: python make_fixtures.py [FOLDER]
import json, os, sys
import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

here = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog doesn't mind; they've seen it 1234 times.",
    "It's what we'll call a text: in 2024 there were 10,000 of them, weren't there? I'd say so.",
    "Der schnelle braune Fuchs springt \u00fcber den faulen Hund, w\u00e4hrend die S\u00f6hne \u00e4u\u00dferst m\u00fcde sind.",
    "Le renard brun saute par-dessus le chien paresseux, o\u00f9 \u00e7a ? \u00c0 No\u00ebl, peut-\u00eatre.",
    "\u0411\u044b\u0441\u0442\u0440\u0430\u044f \u043a\u043e\u0440\u0438\u0447\u043d\u0435\u0432\u0430\u044f \u043b\u0438\u0441\u0430 \u043f\u0440\u044b\u0433\u0430\u0435\u0442 \u0447\u0435\u0440\u0435\u0437 \u043b\u0435\u043d\u0438\u0432\u0443\u044e \u0441\u043e\u0431\u0430\u043a\u0443.",
    "\u654f\u6377\u7684\u68d5\u8272\u72d0\u72f8\u8df3\u8fc7\u4e86\u90a3\u53ea\u61d2\u72d7\u3002\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3067\u3059\u3002\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4.",
    "\u0627\u0644\u062b\u0639\u0644\u0628 \u0627\u0644\u0628\u0646\u064a \u0627\u0644\u0633\u0631\u064a\u0639. \u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd. \u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e. \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "for (int i = 0; i < n; ++i) {\n    sum += a[i] * b[i];\n}\n\treturn sum;\n",
    "\U0001f600\U0001f680 \U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd emoji and e\u0301 accents",
] * 40

# Test texts. The file has their bytes in hexadecimal. They contain text that is split, repaired or normalised, and tokens.
TEXTS = [
    "", " ", "a", "Hello world", " Hello  world ", "It's they'VE we'll DON'T I'd he\u017f 'S",
    "The quick brown fox\n\njumps\r\n  over\t\tthe lazy   dog.   \n",
    "123 4567 12345678 3.14 \u0664\u0665\u0666 \u00bd\u2167", "a\u00a0b\u2003c\u3000d\u180ee\u0085f\u200bg", "caf\u00e9 cafe\u0301 \u212b \u1e9b\u0323 \uac00\u1100\u1161",
    "<|endoftext|>", "a<|endoftext|>b <|endoftext|> c<|endoftext|", "<s>text</s> <s> </s>", "pad <pad> x  <mask>  y<mask>z",
    "word\u2581mark \u2581 \u2581\u2581x", "x" * 200 + " " + "the" * 60, " " * 100 + "end", "\n" * 70 + " \n \n x",
    "\u654f\u6377\u7684\u68d5\u8272\u72d0\u72f8\u3002\n\u300c\u65e5\u672c\u8a9e\u300d\u306e\u6587", "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467\u2764\ufe0f\U0001f1e9\U0001f1ea", "\x00\x01\x1f\x7f\ufeff\ufffd",
    "if (a && b) { x += 1; }  // ok\n\treturn;", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0928\u092e\u0938\u094d\u0924\u0947 \u05e9\u05dc\u05d5\u05dd",
] + CORPUS[:9]
RAW = [b"\xff", b"a\x80b", b"\xe2\x82", b"\xe2\x82a", b"\xf0\x9f\x98", b"\xed\xa0\x80x", b"\xc0\xaf\xf8\x88\x80\x80\x80", b"\xf4\x90\x80\x80\xe0\x80\x80", b"ok\xc3", b"\xf0\x9f\x98\x80\xf0\x9f x"]


def trained(tokenizer, size, special, **options):
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False, **options))
    return tokenizer


def byte_level(pre, normalizer=None, post=None, special=("<|endoftext|>",), **model):
    t = Tokenizer(models.BPE(**model))
    if normalizer: t.normalizer = normalizer
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    trained(t, 420, list(special), initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.post_processor = post(t) if post else processors.ByteLevel(trim_offsets=False)
    return t


def save(name, tokenizer):
    os.makedirs(os.path.join(here, name), exist_ok=True)
    with open(os.path.join(here, name, "tokenizer.json"), "w") as file:
        json.dump(json.loads(tokenizer.to_str()), file, separators=(",", ":"))  # ASCII


def write(name, file, value):
    os.makedirs(os.path.join(here, name), exist_ok=True)
    with open(os.path.join(here, name, file), "w") as out:
        out.write(value if isinstance(value, str) else json.dumps(value, separators=(",", ":")))


def bos(token):
    return lambda t: processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single=f"{token} $A", special_tokens=[(token, t.token_to_id(token))])])


def build():
    made = {}
    split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made["gpt2"] = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    made["llama3"] = byte_level(split, post=bos("<|begin_of_text|>"), special=("<|begin_of_text|>", "<|end_of_text|>"), ignore_merges=True)
    made["digits_nfc"] = byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=True)]),
                                    normalizer=normalizers.NFC())
    made["digits_nfc"].add_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, special=True, normalized=False), AddedToken("quick brown", normalized=True)])
    llama2 = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    llama2.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    llama2.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")  # only for the training, which needs words
    trained(llama2, 620, ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)], limit_alphabet=150)
    description = json.loads(llama2.to_str())
    description["pre_tokenizer"] = None
    description["added_tokens"] = description["added_tokens"][:3]
    llama2 = Tokenizer.from_str(json.dumps(description))
    llama2.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    made["llama2"] = llama2
    meta = json.loads(llama2.to_str())
    meta["normalizer"] = None
    meta["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
    made["metaspace"] = Tokenizer.from_str(json.dumps(meta))
    for name, tokenizer in made.items():
        save(name, tokenizer)
    # GPT-2's two files, in the form of OPT's folder.
    gpt2 = json.loads(made["gpt2"].to_str())["model"]
    vocab = {("</s>" if k == "<|endoftext|>" else k): v for k, v in gpt2["vocab"].items()}
    write("opt", "vocab.json", vocab)
    write("opt", "merges.txt", "#version: 0.2\n" + "".join(" ".join(m) + "\n" for m in gpt2["merges"]).encode("utf-8").decode("utf-8"))
    write("opt", "tokenizer_config.json", {"add_bos_token": True, "add_prefix_space": False, "bos_token": {"content": "</s>"}, "eos_token": {"content": "</s>"}})
    opt = made["opt"] = Tokenizer(models.BPE.from_file(os.path.join(here, "opt", "vocab.json"), os.path.join(here, "opt", "merges.txt")))
    opt.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    opt.add_special_tokens(["</s>"])
    opt.post_processor = processors.TemplateProcessing(single="</s> $A", special_tokens=[("</s>", opt.token_to_id("</s>"))])
    # A SentencePiece model like LLaMA 2's.
    os.makedirs(os.path.join(here, "sentencepiece"), exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_prefix=os.path.join(here, "sentencepiece", "tokenizer"), vocab_size=600, model_type="bpe",
        byte_fallback=True, normalization_rule_name="identity", split_digits=True, add_dummy_prefix=True,
        remove_extra_whitespaces=False, allow_whitespace_only_pieces=True, character_coverage=0.99, minloglevel=2)
    os.remove(os.path.join(here, "sentencepiece", "tokenizer.vocab"))
    return made


if __name__ == "__main__":
    made = build()
    texts = [t.encode("utf-8") for t in TEXTS] + RAW
    golden = {"texts": [t.hex() for t in texts], "ids": {}}
    for name, tokenizer in made.items():
        golden["ids"][name] = [tokenizer.encode(t.decode("utf-8", "replace")).ids for t in texts]
    pieces = sentencepiece.SentencePieceProcessor(model_file=os.path.join(here, "sentencepiece", "tokenizer.model"))
    golden["ids"]["sentencepiece"] = [[pieces.bos_id()] + pieces.encode(t.decode("utf-8", "replace")) for t in texts]
    write(".", "golden.json", golden)
