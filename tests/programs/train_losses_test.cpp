// SPDX-License-Identifier: Apache-2.0
// Tests the files that the program `train` must leave in three cases: its data is truncated while it runs,
// the disk is full, or a signal kills it.
#include "programs/train.hpp"

using test::has, test::Train;

TEST_CASE(
    "train losses: truncated data is an error with both sizes, and the weights of the last step are saved") {
  std::string long_text;
  for (int i = 0; i < 40; ++i) long_text += Train::words;
  std::string const size = std::to_string(long_text.size());
  std::string const bytes = size.substr(0, size.size() - 3) + "," + size.substr(size.size() - 3);
  for (std::string const ranks : {"1", "3"})
    for (std::string const file : {"data", "validation"}) {
      INFO(file, " on ", ranks, " ranks");
      Train const sh;
      sh.write("data.txt", long_text);
      sh.write("validation.txt", long_text);
      auto const result =
          sh.run(sh.tiny +
                 "--steps 10000000 --data data.txt --validation validation.txt --validate-every 500 "
                 "--save kept.safetensors --log log.jsonl --ranks " +
                 ranks + R"( & pid=$!; tries=0
          until grep -q '"step":3,' log.jsonl 2> /dev/null; do
            tries=$((tries + 1)); [ $tries -lt 1200 ] || { kill -9 $pid; exit 99; }
            sleep 0.05
          done
          truncate -s 5 )" +
                 file + ".txt; wait $pid");
      CHECK(result.code == 4);
      std::smatch found;
      std::regex const wanted(
          "^error: " + file + ".txt: was truncated while it was read: it had " + bytes +
          " bytes and has 5 now; [^\n]*; the weights after step ([0-9]+) are in kept.safetensors\n$");
      INFO(result.err);
      REQUIRE(std::regex_match(result.err, found, wanted));
      CHECK(sh.summary("log.jsonl").at("steps_done") == std::stoi(found[1]));
      CHECK_FALSE(has(result.out, "interrupted by"));
      sh.passes(sh.small + "--steps 0 --init kept.safetensors");
    }
}

TEST_CASE("train losses: a disk that is too small for weights or log is refused before the first step") {
  Train const sh;
  // The test mounts a file system of 64 KiB, which needs a user namespace. If the operating system does not
  // permit user namespaces, the test ends.
  auto const on_small = [&](std::string const& command) {
    return sh.run("exec unshare -rm sh -euc 'mkdir -p small; mount -t tmpfs -o size=64k none small; exec " +
                  command + "'");
  };
  if (on_small("true").code != 0) return;
  for (auto const& row : test::table(R"(
      --model layers=1,heads=2,channels=32,positions=64 --steps 3 --save small/w.safetensors | small/w.safetensors: needs 92,032 bytes, and
      --steps 500 --log small/log | small/log: needs 75,000 bytes, and
      --steps 400 --log small/log --save small/w.safetensors | small/log: needs 72,256 bytes, together with small/w.safetensors, and
      --model layers=1,heads=2,channels=16,positions=64 --batch 4 --precision bf16 --offload nvme_parameters --nvme-path small --steps 3 --save small/w.safetensors | small/w.safetensors: needs 66,496 bytes, together with small, and)")) {
    auto const result = on_small(sh.small + row[0]);
    CHECK(result.code == 1);
    CHECK_FALSE(has(result.out, "step 1 "));
    CHECK(result.err ==
          "error: " + row[1] + " 65,536 are free on its disk; free some space or write elsewhere\n");
  }
  auto const large_enough = on_small(sh.small + "--steps 200 --log small/log --save small/w.safetensors");
  CHECK_MESSAGE(large_enough.code == 0, large_enough.err);
}

TEST_CASE("train losses: a killed save leaves a hidden file until the next save in that folder") {
  Train const sh;
  // While `train` saves weights, a hidden file exists. The script must kill `train` during this time. If the
  // save ends before the script sees the hidden file, the script tries again.
  sh.ends(137, R"(mkdir saves; caught=false; tries=0; code=0
      until $caught; do
        tries=$((tries + 1)); [ $tries -le 50 ] || exit 98
        rm -rf saves/w.safetensors
        train -q --model layers=4,heads=8,channels=512 --steps 0 --save saves/w.safetensors > /dev/null & pid=$!
        while kill -0 $pid 2> /dev/null && ! $caught; do
          for file in saves/.*.tmp; do [ ! -e $file ] || { kill -9 $pid; caught=true; }; done
        done
        wait $pid || code=$?
        ls -A saves | grep -q tmp || caught=false
      done
      exit $code)");
  test::shows(sh.passes("ls -A saves"), R"(^\.tessera-[0-9]+-[0-9a-f]+\.tmp\n$)");
  sh.passes(sh.small + "--steps 0 --save saves/w.safetensors");
  CHECK(sh.passes("ls -A saves") == "w.safetensors\n");
}
