// SPDX-License-Identifier: Apache-2.0
// Tests the flags --trace and --profile of the program `train`. The trace must have each entry (operation)
// that `plan --schedule` prints once per step. `train` must print the profile and write it to the log. The
// two flags must not change a bit of the results.
#include <map>

#include "programs/train.hpp"

using test::field, test::has, test::Json, test::shows, test::Train;

namespace {

std::string const traced_model =
    " --model layers=2,heads=2,channels=8,positions=16 --ranks 2 --sequence 8 --batch 2 ";
std::string const traced_train =
    "train" + traced_model + "--data text.txt --offload cpu_optimizer --stage 3 --precision fp16 ";

/// Returns "index verb unit" for each entry (operation) in `listing`, the output of `plan --schedule`. A verb
/// has the name that trace files use.
std::vector<std::string> entries_of(std::string const& listing) {
  // Six verbs had other names in version 1 of the trace format. Trace files keep these older names.
  std::map<std::string, std::string> const before{{"gather", "acquire"}, {"accumulate", "fold"},
                                                  {"fetch", "stream"},   {"write_back", "publish"},
                                                  {"exchange", "share"}, {"copy_scalars", "brief"}};
  std::regex const line(R"(\n([0-9]+) +[a-z]+ +[-0-9]+ +([^ ]+) +([a-z_]+) )");
  std::vector<std::string> entries;
  for (std::sregex_iterator it(listing.begin(), listing.end(), line), end; it != end; ++it) {
    auto const renamed = before.find((*it)[3]);
    std::string const unit = (*it)[2];
    entries.push_back((*it)[1].str() + " " + (renamed == before.end() ? (*it)[3].str() : renamed->second) +
                      (unit == "-" ? "" : " " + unit));
  }
  return entries;
}

}  // namespace

TEST_CASE(
    "train: a trace has the entries of plan --schedule once per step, and a profile is printed and logged") {
  Train const sh;
  auto const wanted = entries_of(
      sh.passes("plan" + traced_model + "--offloads cpu_optimizer --stages 3 --precisions fp16 --schedule"));
  CHECK(wanted.size() >= 30);
  sh.passes(traced_train + "--steps 5 --trace trace.json --trace-steps 2 --profile --log traced.jsonl", R"(
      \ntraced steps 3 to 4 \| trace.json\n
      \nprofile of rank 0 of 2, [0-9.]+ ms a step\ncompute: busy [0-9.]+ ms \+ idle [0-9.]+ ms = [0-9.]+ ms, [0-9.]+% (less|more) than the step\n
      \ncollectives: [0-9.]+ ms, 0.000 ms hidden behind compute, [0-9.]+ ms exposed\n)");
  Json const trace = sh.json("trace.json");
  for (int const step : {2, 3, 4, 5}) {
    std::vector<std::string> found;
    for (Json const& slice : trace.is_array() ? trace : trace.at("traceEvents"))
      if (slice.value("ph", "") == "X" && slice.value("pid", 0) == 1 && slice.contains("args") &&
          slice.at("args").value("step", 0) == step && slice.at("args").contains("entry"))
        found.push_back(slice.at("args").at("entry").dump() + " " + slice.at("name").get<std::string>());
    CHECK(found == (step == 3 || step == 4 ? wanted : std::vector<std::string>()));
    CHECK(has(sh.text("trace.json"), "\"step\":" + std::to_string(step)) == (step == 3 || step == 4));
  }
  Json const profile = field(sh.lines("traced.jsonl", "profile").at(0), "profile");
  CHECK(profile.at("steps") == Json{3, 4});
  CHECK(profile.at("ranks").size() == 2);

  std::string const out = sh.passes(traced_train + "--steps 5 --log plain.jsonl");
  CHECK(sh.weights_hash("traced.jsonl") == sh.weights_hash("plain.jsonl"));
  CHECK(test::matches(out, "profile|traced").empty());
}

TEST_CASE(
    "train: under monitor each micro-batch has a forward and a backward phase, and a step has one update") {
  Train const sh;
  sh.passes("monitor --quiet --interval-ms 1 --json monitor.json --marks marks.json --marks-rank 1 -- " +
            traced_train + "--accumulation 2 --steps 5 --trace marks.json");
  Json const phases = field(sh.json("monitor.json"), "summary", "phases");
  CHECK(field(phases, "phases", "forward", "stretches") == 6);
  CHECK(field(phases, "phases", "backward", "stretches") == 6);
  CHECK(field(phases, "phases", "update", "stretches") == 3);
  CHECK(field(phases, "phases", "steps", "stretches") == 1);
  CHECK(phases.at("last_step") == 5);
}

TEST_CASE("train: --profile without --trace writes no file, and a resumed run traces its own steps") {
  Train const sh;
  auto const before = sh.files();
  std::string const out =
      sh.passes(sh.small + "--steps 4 --trace-steps 1 --profile", R"(\nprofiled step 3\n)");
  CHECK_FALSE(has(out, "collectives"));
  CHECK(sh.files() == before);
  // The rate of the summary does not count warm-up steps. Of the three steps here, only the last one counts.
  sh.passes(sh.small + "--steps 3 --trace-steps 1 --profile --quiet --log profiled.jsonl");
  CHECK(sh.summary("profiled.jsonl").at("step_to_step_std_s").is_null());
  CHECK(sh.summary("profiled.jsonl").at("avg_step_time_s") > 0);
  sh.passes(sh.small + "--steps 4 --checkpoint saved");
  sh.passes(sh.small + "--steps 8 --checkpoint saved --resume --trace more.json --trace-steps 2",
            R"(\ntraced steps 7 to 8 \| more.json\n)");
}

TEST_CASE("train: wrong flags of --trace and --profile are refused, and a run continues without its trace") {
  Train const sh;
  sh.refuses(sh.small, R"(
      2 | --trace-steps 2 | --trace-steps | give --trace FILE or --profile
      3 | --steps 4 --trace t.json | --trace takes 5 steps, 2 of them to warm up, but this run takes 4 | --trace-steps
      3 | --steps 0 --profile | --profile takes 5 steps
      3 | --steps 1 --min-time 0.2 --profile | --profile takes 5 steps, 2 of them to warm up, but --steps gives 1
      2 | --steps 5 --profile --quiet | --profile prints a table, but --quiet prints none | give --log FILE
      1 | --trace nowhere/t.json | nowhere/t.json
      2 | --trace t.json --log t.json | --trace | --log | the same file
      2 | --trace text.txt | --trace | --data | the same file
      2 | --trace - | --trace '-' is not the name of a file)");
  if (!sh.exists("/dev/full")) return;
  auto const full = sh.run(sh.small + "--steps 5 --quiet --trace /dev/full --save weights.safetensors");
  CHECK(full.code == 1);
  shows(
      full.err,
      R"(warning: /dev/full: [^\n]*; the run goes on without its trace\nerror: /dev/full: the trace was not written; the training and its weights are not affected\n)");
  CHECK(sh.exists("weights.safetensors"));
}
