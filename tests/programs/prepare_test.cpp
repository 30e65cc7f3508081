// SPDX-License-Identifier: Apache-2.0
// Tests the program `prepare`, which converts text to tokens, and the program `train` if it converts text
// with a tokenizer.
#include "programs/harness.hpp"

using test::Json, test::Shell, test::table;

namespace {

std::string const gpt2 = R"( --tokenizer "$TESSERA_SOURCE"/tests/text/fixtures/gpt2 )";

/// Runs commands in a folder with text files: a file with a single letter, one with 1001 lines, one with
/// 31031 lines, and one with 31 records. Another file has the 31 records and some unusual lines, two of which
/// contain invalid UTF-8.
struct Texts : Shell {
  Texts() {
    passes(R"(
      printf a > a.txt
      seq 0 1000 | sed "s/.*/Line &: the quick brown fox doesn't jump over & lazy dogs./" > short.txt
      for i in $(seq 31); do cat short.txt; done > book.txt
      seq 0 30 | sed 's/.*/{"id": &, "text": "Record & of a few.", "body": "other &"}/' > records.jsonl
      cp records.jsonl odd.jsonl
      printf '\r\n \t\r\n{"body": "No \377\303( UTF-8 here.", "id": {"body": "x"}, "text": 5}\r\n' >> odd.jsonl
      printf '{"body": 1, "text": "t", "body": "Twice \342\202 given."}\n' >> odd.jsonl)");
  }
};

}  // namespace

TEST_CASE("prepare: headers are those of llm.c, with uint16 for small vocabularies and uint32 on request") {
  Texts const sh;
  sh.passes("prepare a.txt --output a.bin" + gpt2);
  // The file starts with the header of a token file: the magic number 20240520, version 1, and the number of
  // tokens. The two tokens are the token for "a" and the token for the end of a text.
  CHECK(sh.text("a.bin").substr(0, 12) == std::string("\x88\xd8\x34\x01\1\0\0\0\2\0\0\0", 12));
  CHECK(sh.text("a.bin").size() == 1028);
  Json const about = sh.json("a.bin.json");
  CHECK(about.at("tokens") == 2);
  CHECK(about.at("documents") == 1);
  CHECK(about.at("ids") == "uint16");
  sh.passes("prepare a.txt --output b.bin --ids uint32 --end-of-text none" + gpt2);
  // The header has the magic number 20240801, version 7, and the number of tokens, 1.
  CHECK(sh.text("b.bin").substr(0, 12) == std::string("\xa1\xd9\x34\x01\7\0\0\0\1\0\0\0", 12));
}

TEST_CASE("prepare: --check finds damaged tokens, a damaged header and the .json of another file") {
  Texts const sh;
  sh.passes("prepare a.txt --output a.bin" + gpt2);
  sh.passes("prepare --check a.bin");
  sh.write("a.bin", sh.text("a.bin").replace(1025, 1, "x"));
  sh.refuses("prepare", "4 | --check a.bin | a.bin: its tokens have the hash | the file is damaged");

  sh.passes("prepare a.txt --output b.bin --ids uint32 --end-of-text none" + gpt2);
  sh.passes("prepare --check b.bin");
  CHECK(sh.passes("prepare --check b.bin --quiet") == "");
  // Each row of the table below is: offset in the file | bytes that the test writes at this offset | error
  // message.
  for (auto const& row : table(R"(
      0 | \210 | has llm.c's header for 1 tokens, but its magic is
      4 | \010 | has version 8
      8 | \002 | its header gives 2 tokens, but it holds 1
      12 | \001 | its header holds more than magic, version and number of tokens
      1023 | x | its header holds more than
      1028 | \0\0\0\0 | its header gives 1 tokens, but it holds 2)")) {
    sh.passes("cp b.bin d.bin; cp b.bin.json d.bin.json; printf '" + row[1] +
              "' | dd of=d.bin bs=1 conv=notrunc status=none seek=" + row[0]);
    sh.refuses("prepare", "4 | --check d.bin | d.bin: | " + row[2]);
  }
  sh.passes("cp b.bin d.bin");
  for (auto const& row : table(R"(
      "tokens": 1 | "tokens": 2 | its header gives 1 tokens, but its .json 2
      uint32 | uint16 | its header gives uint32, and its .json uint16
      "tokens" | "token" | has no tokens
      "hash" | "hush" | .json: has no hash
      "schema_version": 1 | "schema_version": 2 | .json: has schema_version 2, but only 1 can be read
      "schema_version" | "version" | .json: has no schema_version
      "vocabulary": 420 | "vocabulary": 1 | .json: has a tokenizer.vocabulary of 1, but the largest token is
      "vocabulary": 420 | "vocabulary": -420 | .json: has no tokenizer.vocabulary
      "documents": 1 | "documents": -5 | .json: has documents -5, a whole number of 0 or more is needed
      "bytes": 1 | "bytes": 1.5 | .json: has bytes 1.5)")) {
    sh.write("d.bin.json", test::replaced(sh.text("b.bin.json"), row[0], row[1]));
    sh.refuses("prepare", "4 | --check d.bin | " + row[2]);
  }
}

TEST_CASE("prepare: --check refuses inputs and flags that it does not use") {
  Texts const sh;
  sh.passes("prepare a.txt --output b.bin" + gpt2);
  sh.refuses("prepare --check b.bin", R"(
      2 | a.txt | input 'a.txt' has no effect with --check | leave one of them out
      2 | --output x.bin | --output has no effect with --check
      2 | --tokenizer "$TESSERA_SOURCE"/tests/text/fixtures/gpt2 | --tokenizer has no effect with --check
      2 | --threads 2 | --threads has no effect with --check
      2 | --resume | --resume has no effect with --check
      2 | --format jsonl | --format has no effect with --check
      2 | --field body | --field has no effect with --check
      2 | --ids uint32 | --ids has no effect with --check)");
}

TEST_CASE(
    "prepare: JSON Lines are recognised by the file name in any case, and in .json files by the first line") {
  Texts const sh;
  for (std::string const name : {"lines.jsonl", "capitals.JSONL", "plain.json"}) {
    sh.passes("cp records.jsonl " + name);
    sh.passes("prepare -q " + name + " --output named-" + name + ".bin" + gpt2);
    sh.passes("cmp named-lines.jsonl.bin named-" + name + ".bin");
  }
  CHECK(sh.json("named-plain.json.bin.json").at("documents") == 31);
  sh.write("array.json", R"([{"text": "one"}])");
  sh.write("pretty.json", "{\n  \"text\": \"one\"\n}\n");
  sh.write("nul.txt", std::string("ab\0c", 4));
  sh.refuses("prepare --output x.bin" + gpt2, R"(
      4 | array.json | array.json: its first line is not a whole JSON object | write JSON Lines
      4 | pretty.json | pretty.json: its first line is not a whole JSON object | write JSON Lines
      4 | nul.txt | nul.txt: holds a NUL byte at 2, so it is not text)");
}

TEST_CASE("prepare: --validation-share splits one short text") {
  Texts const sh;
  sh.passes("prepare short.txt --output short.bin --validation-share 0.02" + gpt2);
  sh.passes("prepare short.txt --output whole.bin" + gpt2);
  auto const tokens = [&](std::string const& name) {
    return sh.json(name + ".bin.json").at("tokens").get<int>();
  };
  int const split = tokens("short.validation");
  CHECK(tokens("short") + split == tokens("whole"));
  CHECK(100 * split / tokens("whole") >= 1);
  CHECK(100 * split / tokens("whole") <= 3);
}

TEST_CASE(
    "prepare: outputs are equal for any number of threads, from standard input, and after an interruption") {
  Texts const sh;
  std::string const both =
      R"(prepare book.txt records.jsonl --tokenizer "$TESSERA_SOURCE"/tests/text/fixtures/llama3 )"
      "--validation-share 0.1 --output ";
  sh.passes(both + "one.bin --threads 1", R"(
      <.begin_of_text.> TEXT <.end_of_text.>
      train --data one.bin --vocabulary 420)");
  sh.passes(both + "four.bin --threads 4");
  sh.passes("cmp one.bin four.bin && cmp one.validation.bin four.validation.bin");
  sh.passes("cat book.txt | prepare - -q --output piped.bin" + gpt2);
  sh.passes("prepare book.txt --output named.bin" + gpt2);
  sh.passes("cmp piped.bin named.bin");

  auto const cut = sh.run("ulimit -f 700; " + both + "cut.bin --save-every 0");
  CHECK(cut.code == 1);
  test::shows(cut.err, "^error: cut.bin.partial: cannot write");
  CHECK(sh.exists("cut.bin.state"));
  CHECK_FALSE(sh.exists("cut.bin"));
  sh.refuses(both + "cut.bin", R"(
      2 |  | cut.bin.state: a run of this --output ended early | --resume
      3 | --resume --field body | belongs to a run with other inputs, another tokenizer or other flags)");
  sh.passes(both + "cut.bin --resume", "continues after [0-9,]+ bytes and [1-9][0-9,]+ tokens");
  sh.passes("cmp one.bin cut.bin && cmp one.validation.bin cut.validation.bin");
  CHECK_FALSE(sh.exists("cut.bin.state"));
  CHECK_FALSE(sh.exists("cut.bin.partial"));
}

TEST_CASE("prepare: an interrupted run on standard input keeps nothing, and says that it starts again") {
  Texts const sh;
  // The writer of standard input sends a signal while it still writes.
  auto const cut =
      sh.run(R"({ cat book.txt book.txt; sleep 0.5; kill -INT $(cat pid); sleep 0.2; cat book.txt; } | )"
             R"(sh -c 'echo $$ > pid; exec prepare - --save-every 0 --output cut.bin )" +
             gpt2 + "'");
  CHECK(cut.code == 130);
  for (std::string const left : {"cut.bin", "cut.bin.partial", "cut.bin.state"}) CHECK_FALSE(sh.exists(left));
  test::shows(cut.out,
              "interrupted by SIGINT after [0-9,]+ bytes; standard input cannot be read again, so "
              "nothing was kept; start the same command again");
  sh.passes("cat book.txt | prepare - --output cut.bin" + gpt2);
}

TEST_CASE("prepare: wrong flags, names and inputs are refused") {
  Texts const sh;
  sh.passes("prepare a.txt --output named.bin" + gpt2);
  sh.passes("cp named.bin renamed");
  sh.refuses("prepare", R"(
      2 | a.txt --output x.bin | no tokenizer
      2 | a.txt --thread 2 | unknown flag '--thread', the nearest is --threads
      4 | a.txt --output x.bin --tokenizer nowhere | nowhere: no such folder | tokenizer.json | docs/how-to/load-and-save-weights.md has the command that downloads one)");
  sh.refuses("prepare" + gpt2 + "--output x.bin", R"(
      2 | a.txt --output x.txt | must end in .bin
      2 | - --resume | standard input
      2 | a.txt --num_gpus 2 | '--num_gpus' is a flag of the launcher | prepare needs no launcher
      4 | named.bin | named.bin: has the name of a token file
      4 | renamed | renamed: is a token file of llm.c | ends in .bin
      4 | records.jsonl --field words | records.jsonl: line 1: has no field 'words', its fields are: id, text, body
      4 | records.jsonl --validation-share 0.01 | --validation-share 0.01 of 31 documents or stretches of text selects none)");
}

TEST_CASE("prepare: train reads the prepared files, and makes the same tokens from text") {
  Texts const sh;
  std::string const tiny =
      "train --model layers=1,heads=2,channels=8,positions=16 --sequence 8 --batch 2 --steps 3 --data ";
  auto const loss = [&](std::string const& log) {
    for (Json const& line : sh.json_lines(log))
      if (line.value("step", 0) == 3) return line.at("loss").get<double>();
    FAIL(log, " has no third step");
    return 0.0;
  };
  sh.passes("prepare book.txt --output named.bin" + gpt2);
  sh.passes(tiny + "named.bin --vocabulary 420 --log prepared.jsonl");
  sh.passes(tiny + "book.txt --log text.jsonl --validation records.jsonl --field body" + gpt2);
  CHECK(loss("prepared.jsonl") == loss("text.jsonl"));

  sh.passes("prepare odd.jsonl --output fresh.bin --resume --field body" + gpt2,
            "some bytes are not valid UTF-8: replaced 3 times by U.FFFD");
  CHECK(sh.json("fresh.bin.json").at("replaced") == 3);
  sh.passes("prepare a.txt --output a.bin" + gpt2);
  std::string const end = "$(od -An -j 1026 -N 2 -t u2 a.bin)";  // the token for the end of a text
  sh.passes(tiny + "fresh.bin --vocabulary 420 --samples-are records --log prepared.jsonl --separator " +
            end);
  sh.passes(tiny + "odd.jsonl --samples-are records --field body --log text.jsonl" + gpt2,
            "odd.jsonl .3 x invalid UTF-8 as U.FFFD.");
  CHECK(loss("prepared.jsonl") == loss("text.jsonl"));
  sh.refuses(tiny, R"(
      2 | book.txt --field body | --field applies only to records, but samples are tokens
      2 | fresh.bin --samples-are records --tokenizer "$TESSERA_SOURCE"/tests/text/fixtures/gpt2 | fresh.bin: already holds tokens, so a tokenizer cannot read it)");
}
