// SPDX-License-Identifier: Apache-2.0
// Tests the program `train` if it receives a signal, and if the reader of its output is gone. `train` must
// complete its step, save its weights and end.
#include "programs/train.hpp"
#include "support/sanitizers.hpp"

using test::has, test::shows, test::Train;

namespace {

// The thread sanitizer holds a signal back while the program waits in write().
constexpr bool signals_wait = TESSERA_TEST_THREAD_SANITIZER;

/// Returns a shell command that runs `train` with the flags `flags`. The command writes the process id of
/// `train` to the file `pid`. After a failure it writes the exit code of `train` to the file `code`.
std::string with_pid(std::string const& flags) {
  return "{ sh -c 'echo $$ > pid; exec " + Train::small + flags + "' || echo $? > code; }";
}

/// Returns `times` copies of the text `text`, one after the other. With so much text, `train` needs some time
/// to read its data file.
std::string repeated(std::string const& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

}  // namespace

TEST_CASE("train: SIGINT, SIGTERM and SIGHUP end a run after its step, and its weights are saved") {
  Train const sh;
  // If a second signal arrives directly after the first, both count as one signal. The reason is that
  // timeout(1) signals a process and also its process group.
  for (auto const& row : test::table("INT | 130\nTERM | 143\nHUP | 129")) {
    CHECK(sh.signalled(row[0] + " " + row[0], "\"step\":3,", row[0] + ".jsonl",
                       sh.small + "--ranks 2 --stage 2 --steps 10000000 --save " + row[0] +
                           ".safetensors --log " + row[0] + ".jsonl") == std::stoi(row[1]));
    shows(sh.text("out.txt"), "interrupted by SIG" + row[0] + " after step [0-9]+ of 10000000");
    sh.passes(sh.small + "--steps 0 --init " + row[0] + ".safetensors");
    CHECK(sh.summary(row[0] + ".jsonl").at("interrupted") == true);
  }
}

TEST_CASE(
    "train: a signal within the last validation: the weights are saved, but the run counts as interrupted") {
  Train const sh;
  sh.write("long.txt", repeated(sh.words, 2000));
  CHECK(sh.signalled("INT", "\"step\":3,", "log.jsonl",
                     sh.small + "--ranks 2 --steps 3 --validation long.txt "
                                "--log log.jsonl --save validated.safetensors") == 130);
  CHECK(sh.summary("log.jsonl").at("interrupted") == true);
  shows(sh.text("out.txt"),
        "interrupted by SIGINT after step 3 of 3, during its validation: there is no validation loss");
  sh.passes(sh.small + "--steps 0 --init validated.safetensors");
}

TEST_CASE("train: a signal within the steps that --min-time adds: the run succeeds, without a validation") {
  Train const sh;
  CHECK(sh.signalled("INT", "\"step\":6,", "log.jsonl",
                     sh.small + "--ranks 2 --steps 3 --min-time 60 "
                                "--validation text.txt --log log.jsonl") == 0);
  CHECK(test::matches(sh.text("out.txt"), "validation after|interrupted").empty());
}

TEST_CASE("train: a signal that also ends the reader of its output") {
  Train const sh;
  sh.passes(with_pid("--steps 100000 --log hung.jsonl --save hung.safetensors") + R"( 2> err.txt |
      { until grep -q '"step":3,' hung.jsonl; do sleep 0.05; done 2> /dev/null; kill -HUP $(cat pid); })");
  CHECK(sh.text("code") == "129\n");
  sh.passes(sh.small + "--steps 0 --init hung.safetensors");
  for (std::string const signal : {"INT", "TERM"}) {
    sh.passes("rm -f copy pid; " +
              with_pid("--steps 10000000 --print-every 1 --save " + signal + ".safetensors --checkpoint " +
                       signal) +
              R"( 2>&1 | sh -c 'echo $$ > reader; exec cat > copy' &
              until grep -q 'step 3 ' copy; do sleep 0.05; done 2> /dev/null
              kill -KILL $(cat reader); kill -)" +
              signal + " $(cat pid); wait");
    CHECK(sh.exists(signal + ".safetensors"));
    CHECK(sh.exists(signal + "/latest"));
  }
}

TEST_CASE("train: if the reader of its output ends, a run that writes files continues, and other runs stop") {
  Train const sh;
  for (std::string const output : {"--save", "--log", "--checkpoint"}) {
    sh.passes("rm -f code; { " + sh.small + "--steps 30 --print-every 1 " + output + " unread" + output +
              ".safetensors" + "; echo $? > code; } 2>&1 | head -n 1");
    CHECK(sh.text("code") == "0\n");
    CHECK(sh.exists("unread" + output + ".safetensors"));
  }
  sh.passes(sh.small + "--steps 30 --save read.safetensors");
  CHECK(sh.equal("unread--save.safetensors", "read.safetensors"));
  sh.passes("{ " + sh.small + "--steps 100000000 --print-every 1 || echo $? > code; } | head -n 1");
  CHECK(sh.text("code") == "141\n");
}

TEST_CASE("train: if its standard streams are closed, a file of the run does not get their numbers") {
  Train const sh;
  sh.ends(1, sh.small + "--steps 3 --log closed.jsonl --save closed.safetensors >&- 2>&-");
  CHECK(sh.json_lines("closed.jsonl").size() == 5);
  sh.passes(sh.small + "--steps 0 --init closed.safetensors");
}

TEST_CASE("train: under nohup SIGHUP is ignored") {
  Train const sh;
  sh.ends(143, "trap '' HUP; " + sh.small + R"(--steps 10000000 --log nohup.jsonl > out.txt & pid=$!
      until grep -q '"step":3,' nohup.jsonl; do sleep 0.05; done 2> /dev/null
      kill -HUP $pid; sleep 0.3; kill -TERM $pid; wait $pid)");
}

TEST_CASE("train: a later signal ends a run at once, also if nobody reads its log and it is blocked") {
  if (signals_wait) return;
  Train const sh;
  // Waits until train uses no CPU time any more, because it is blocked. A second signal directly after the
  // first is ignored; a later one ends the run.
  sh.passes(with_pid("-q --steps 10000000 --log /dev/stdout") + R"( 2> err.txt |
      { head -c 1 > begun; exec sleep 30; } > out.txt 2>&1 &
      until [ -s begun ]; do sleep 0.05; done
      pid=$(cat pid); still=0; before=none
      until [ $still = 3 ]; do
        sleep 0.2; now=$(cut -d' ' -f14,15 /proc/$pid/stat)
        if [ "$now" = "$before" ]; then still=$((still + 1)); else still=0; fi
        before=$now
      done
      kill -TERM $pid; sleep 0.1; kill -TERM $pid; sleep 0.1
      kill -0 $pid
      sleep 0.4; kill -TERM $pid
      until [ -s code ]; do sleep 0.1; done)");
  CHECK(sh.text("code") == "143\n");
}

TEST_CASE("train: a signal within a step of minutes ends a run after ten seconds if it saves nothing") {
  if (signals_wait) return;
  Train const sh;
  sh.write("book.txt", repeated(sh.words, 8000));
  // The low priority of these runs leaves CPU time to other tests.
  std::string const ended = sh.passes(R"(
      slow='train --model layers=4,heads=1,channels=64 --sequence 200000 --batch 1 --data book.txt --steps 1'
      $slow --log brief.jsonl > brief.out 2> brief.err & brief=$!
      $slow --log whole.jsonl --save slow.safetensors > whole.out 2>&1 & whole=$!
      until grep -q config brief.jsonl && grep -q config whole.jsonl; do sleep 0.05; done 2> /dev/null
      sleep 0.5; renice -n 19 $(ls /proc/$brief/task /proc/$whole/task | grep '^[0-9]*$') > /dev/null
      kill -TERM $brief $whole; start=$(date +%s); code=0; wait $brief || code=$?
      end=$(date +%s); sleep 1; kill -KILL $whole  # fails if it has ended
      echo $code $((end - start)))");
  CHECK(ended.substr(0, 4) == "143 ");
  int const seconds = std::stoi(ended.substr(4));
  CHECK(seconds >= 9);
  CHECK(seconds <= 20);
  CHECK(sh.text("brief.err") ==
        "error: interrupted, and the step did not end in time; there was nothing to save\n");
}

TEST_CASE("train interrupt: lines of steps end with the time left if the length of the run is known") {
  Train const sh;
  std::string const endless = sh.small + "--log run.jsonl --save w.safetensors --epochs 1000000";
  CHECK(sh.signalled("TERM", "| ETA [0-9:]* [minh]*$", "out.txt", endless) == 143);
  test::shows(sh.text("out.txt"), R"(step \d+ \| loss .* tok/s \| ETA \d+:\d\d(:\d\d h| min)\n)");
  CHECK_FALSE(test::has(sh.text("run.jsonl"), "ETA"));
  CHECK(sh.exists("w.safetensors"));  // an interrupted run saves its weights
  CHECK_FALSE(test::has(sh.passes(sh.small + "--steps 4 --min-time 3.5"), "ETA"));
}
