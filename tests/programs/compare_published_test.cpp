// SPDX-License-Identifier: Apache-2.0
// Tests the published comparisons that the programs `compare` and `plan` know: command lines in the spelling
// of a publication, the defaults of the publication, and its figures. Also tests flags files (files with
// command-line flags).
#include "programs/compare_support.hpp"

using test::Compare, test::field, test::Json, test::matches, test::shows;

namespace {

struct Published : Compare {
  /// Checks the output of `compare --print-config`. Each line of `rows` has the form "flags | origin: line;
  /// line | origin: line". `flags` are the flags of the command. Each `line` is a regular expression that one
  /// line of the output must match. This line of the output must have `origin` as its comment. In `rows`, the
  /// words SWEEP and OFFLOADS stand for the defaults of two published comparisons.
  void resolves(std::string rows) const {
    rows = std::regex_replace(
        rows, std::regex("SWEEP"),
        "spelled --batch-size: --defaults stage-sweep | stage-sweep: --ranks 1; --accumulation 1; "
        "--learning-rate 1e-4; --precisions bf16; --offloads none; --warmup 5; --format flat; --timestamp");
    rows = std::regex_replace(
        rows, std::regex("OFFLOADS"),
        "spelled --batch-size: --defaults offload-sweep | default: # --global-batch | offload-sweep: "
        "--stages 3; --sequence 512; --steps 20; --learning-rate 1e-4; --precisions bf16");
    for (auto const& row : test::table(rows)) {
      std::string lines;
      for (std::size_t i = 1; i < row.size(); ++i) {
        std::size_t const colon = row[i].find(": ");
        for (std::string const& line : matches(row[i].substr(colon + 2), "[^; ][^;]*"))
          lines += R"(\n)" + line + " +# " + row[i].substr(0, colon) + "\\n\n";
      }
      INFO(row[0]);
      shows("\n" + passes("compare --data text.txt --print-config " + row[0]), lines);
    }
  }
};

/// Returns an array with the values of the keys `keys` in the row `row` of the result table.
Json values_of(Json const& row, std::vector<std::string> const& keys) {
  Json values;
  for (std::string const& key : keys) values.push_back(row.at(key));
  return values;
}

}  // namespace

TEST_CASE("compare published: a line in the published spelling gets the defaults of its comparison") {
  Published const sh;
  sh.passes("mkdir nvme");
  sh.resolves(R"(
      --model gpt2 --batch-size 4 | SWEEP | stage-sweep: --sequence 512; --stages 0 1 2 3; --steps 20 | flag: --models gpt2; --batch 4
      --model gpt2 --batch-size 4 --stages 0 1 2 3 --num-steps 50 | SWEEP | stage-sweep: --sequence 512 | flag: --stages 0 1 2 3; --steps 50
      --model meta-llama/Llama-2-7b-hf --batch-size 2 | SWEEP | stage-sweep: --sequence 512; --stages 0 1 2 3; --steps 20 | flag: --models meta-llama/Llama-2-7b-hf; --batch 2
      --model facebook/opt-1.3b --batch-size 8 --seq-length 512 --num-steps 50 --stages 0,1,2,3 | SWEEP | flag: --models facebook/opt-1.3b; --batch 8; --sequence 512; --steps 50
      --warmup-steps 10 --num-steps 50 | spelled --warmup-steps: --defaults stage-sweep | stage-sweep: --models gpt2 | flag: --warmup 10; --steps 50 | stage-sweep: --batch 4; --stages 0 1 2 3
      --model facebook/opt-1.3b --batch-size 8 --seq-length 512 --num-steps 50 --stages 0 1 2 3 | SWEEP | flag: --models facebook/opt-1.3b; --stages 0 1 2 3
      --strategies none cpu_optimizer cpu_full | spelled --strategies: --defaults offload-sweep | offload-sweep: --models gpt2; --batch 4; --stages 3 | flag: --strategies none cpu_optimizer cpu_full
      --model gpt2-large --strategies none cpu_optimizer | spelled --strategies: --defaults offload-sweep | offload-sweep: --sequence 512; --steps 20 | flag: --models gpt2-large
      --grad-accum 2 | spelled --grad-accum: --defaults stage-sweep | flag: --accumulation 2 | stage-sweep: --stages 0 1 2 3; --steps 20
      --model gpt2 --batch-size 4 --strategies none cpu_optimizer cpu_full | OFFLOADS | flag: --strategies none cpu_optimizer cpu_full
      --model meta-llama/Llama-2-7b-hf --batch-size 2 --nvme-path nvme --strategies none cpu_optimizer cpu_full nvme | OFFLOADS | flag: --strategies none cpu_optimizer cpu_full nvme; --nvme-path nvme
      --model gpt2 --batch-size 4 --nvme-path nvme | OFFLOADS | offload-sweep: --strategies none cpu_optimizer cpu_full nvme)");
  sh.resolves(
      test::each("NAME",
                 "gpt2 gpt2-medium gpt2-large gpt2-xl openai-community/gpt2 facebook/opt-1.3b opt-1.3b "
                 "Llama-2-7b-hf meta-llama/Llama-2-13b-hf meta-llama/Llama-2-70b-hf",
                 "--model NAME --batch-size 1 | flag: --models NAME"));
}

TEST_CASE("compare published: --defaults applies without a published spelling and contrary to it") {
  Published const sh;
  sh.resolves(R"(
      --defaults offload-sweep | offload-sweep: --models gpt2; --strategies none cpu_optimizer cpu_full
      --defaults own --batch-size 4 | default: --models tiny
      --model gpt2 --defaults offload-sweep | flag: --defaults offload-sweep | offload-sweep: --batch 4; --strategies none cpu_optimizer cpu_full
      --model gpt2 --defaults own --batch-size 4 --steps 3 | flag: --defaults own | default: --sequence 128; --format rows; # --global-batch
      --model gpt2 --batch 4 --stages 0 1 2 3 | default: --defaults own; --sequence 128
      --strategies none cpu_optimizer --batch 2 | default: --defaults own; --models tiny
      --strategies zero1 zero2 | default: --defaults own; --models tiny
      --model gpt2 --gpus 2 --batch-size 4 --precision bf16 --epochs 4 --samples 20 --json a.json | flag: --ranks 2; --precisions bf16 | default: # --steps | flag: --epochs 4; --json a.json)");
}

TEST_CASE("compare published: contradictory lines and unknown comparisons are refused") {
  Published const sh;
  sh.refuses("compare", R"(
      2 | --model gpt2 --batch-size 4 --steps 50 | --batch-size is the spelling of the published comparisons | --steps is the spelling of this program | --defaults own|stage-sweep|offload-sweep
      2 | --batch 4 --batch-size 2 | --batch-size | --batch is
      2 | --full --num-steps 3 | --num-steps | --full
      2 | --model gpt2 --batch-size 4 --strategies none nvme | nvme keeps state in files | offload-sweep | --nvme-path FOLDER
      2 | --defaults stage-swep | --defaults | 'stage-swep' | 'stage-sweep'
      2 | --timestamp --json out.json | --timestamp changes the names of the files in --output-dir
      2 | --data text.txt --published stage-swep | --published | 'stage-swep' | 'stage-sweep')");
}

TEST_CASE("compare published: the command line overrides a file of flags in any spelling") {
  Published const sh;
  sh.write("my.flags",
           "# A comment; 'with a quote\n--model gpt2 --batch 2   # more\n--stages 0,1\n--freeze "
           "'wte|wpe'\n--repeat 3\n");
  sh.write("published.flags", "--model gpt2 --batch-size 2\n");
  sh.resolves(R"(
      --repeat 5 @my.flags | my.flags: --models gpt2; --batch 2; --stages 0,1 | flag: --repeat 5 | my.flags: --freeze 'wte[|]wpe' | default: --sequence 128
      @my.flags --batch-size 8 | flag: --batch 8 | default: --sequence 128
      @published.flags --steps 7 | published.flags: --batch 2 | flag: --steps 7 | stage-sweep: --sequence 512)");
  sh.write("nested.flags", "--model gpt2\n@my.flags\n");
  sh.write("open.flags", "--model gpt2\n--freeze 'wte\n");
  sh.refuses("compare", R"(
      2 | @absent.flags | @absent.flags: cannot be read | a file of flags
      2 | @nested.flags | @nested.flags, line 2: '@my.flags' is another file of flags
      2 | @/dev/zero | @/dev/zero: is longer than 1 MiB
      2 | @open.flags | @open.flags, line 2: a quote is not closed)");
}

TEST_CASE("compare published: the lines of --print-config are a command line of the same comparison") {
  Published const sh;
  auto const printed = [&](std::string const& flags) {
    sh.write("printed.flags", sh.passes("compare --print-config " + flags));
    return test::replaced(sh.text("printed.flags"), R"( *#[^\n]*)", "");
  };
  std::string const first =
      printed("--model gpt2 --batch-size 4 --strategies none cpu_optimizer --data text.txt");
  CHECK(printed("@printed.flags") == first);
}

TEST_CASE("compare published: plan accepts the same lines and prints the bytes of each row") {
  Published const sh;
  std::string const plan = "plan --device cuda --memory 80GB --no-search ";
  sh.ends(
      5,
      plan +
          "--model meta-llama/Llama-2-7b-hf --batch-size 2 --num-steps 50 --warmup-steps 5 --stages 0 1 2 3",
      R"(
      defaults: stage-sweep, as published \(spelled --batch-size\)
      llama-2-7b, bf16, 1 rank, batch 2, sequence 512)");
  // The published strategy nvme moves only the parameters. --offloads has the names of this program.
  auto const offloads = [&](std::string const& flags) {
    Json names;
    sh.passes(plan + "--model gpt2 --json plan.json " + flags);
    for (Json const& row : field(sh.json("plan.json"), "rows")) names.push_back(row.at("offload"));
    return names;
  };
  Json const published = {"none", "cpu_optimizer", "nvme_parameters"};
  CHECK(offloads("--batch-size 4 --strategies none cpu_optimizer nvme") == published);
  CHECK(offloads("--defaults offload-sweep --strategies nvme,nvme_parameters") == Json{"nvme_parameters"});
  CHECK(offloads("--defaults offload-sweep --offloads nvme") == Json{"nvme"});
  CHECK(offloads("--defaults own --ranks 1 --stages 3 --precisions bf16 --strategies nvme") == Json{"nvme"});
}

TEST_CASE("compare published: plan prints the published figures next to the planned ones") {
  Published const sh;
  sh.passes("plan @" TESSERA_SOURCE
            "/examples/experiments/stage-sweep.flags --models gpt2 --device cuda --memory 80GB "
            "--no-search --machine h200",
            R"(
      zs0, bf16 +45000 +\([0-9]+\) +45 +\([0-9.]+\) +8\.2 +\(3\.04\) +fits optimal
      here on: device cuda, planned and not run, with the times of h200)");
  // A published command line selects its comparison itself.
  shows(sh.passes("plan --model gpt2 --batch-size 4 --device cuda --memory 80GB --no-search"),
        "published, stage-sweep: stages 0 to 3\nzs3, bf16 +33000");
}

TEST_CASE("compare published: rows that are refused because a GPU is missing are planned") {
  Published const sh;
  std::string const flags =
      " @" TESSERA_SOURCE "/examples/experiments/stage-sweep.flags --models gpt2 --device cuda ";
  auto const end = sh.run("CUDA_VISIBLE_DEVICES= compare --json rows.json" + flags);
  CHECK(end.code == 3);
  if (!has(end.err, "device cuda is not part of this build")) return;  // this build trains on GPUs
  shows(end.out, R"(
      zs0, bf16 +45000 +- +45 +- +8\.2 +\(3\.04\) +refused
      \(in brackets\): planned memory)");
  sh.passes("plan --memory 80GB --no-search --json plan.json" + flags);
  Json const rows = field(sh.json("rows.json"), "rows"), plans = field(sh.json("plan.json"), "rows");
  REQUIRE(rows.size() == plans.size());
  for (std::size_t at = 0; at < rows.size(); ++at) {
    CHECK(rows[at].at("planned_gpu_mem_mb") == plans[at].at("planned_gpu_mem_mb"));
    CHECK(rows[at].at("peak_gpu_mem_mb").is_null());
    CHECK(rows[at].at("published").at("ratios").empty());
    CHECK(plans[at].at("published").at("figures") == rows[at].at("published").at("figures"));
  }
}

TEST_CASE("compare published: the folder of a known model has the published figures of this model") {
  Published const sh;
  sh.write("gpt2-medium/config.json", R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
    "n_layer": 24, "n_head": 16, "n_embd": 1024, "n_positions": 1024, "vocab_size": 50257,
    "activation_function": "gelu_new"})");
  std::string const plan =
      "plan --device cuda --memory 80GB --no-search --published zero-medium --ranks 1 --batch 4 "
      "--sequence 512 --stages dp,1 --precisions fp16 --offloads none --model ";
  sh.passes("cp -r gpt2-medium mine; " + plan + "mine", R"(
      zs1, fp16 +52\.10
      models: mine has the sizes of gpt2-medium)");
  // A vocabulary of another size makes another model.
  sh.passes("sed -i s/50257/50304/ mine/config.json; " + plan + "mine", "published: no row here has");
}

TEST_CASE("compare published: each published row is a row of the plan of its file of flags") {
  Published const sh;
  std::string const folder = TESSERA_SOURCE "/examples/experiments/";
  Json const comparisons = Json::parse(test::read(folder + "published.json")).at("comparisons");
  CHECK(comparisons.size() > 0);
  for (Json const& comparison : comparisons) {
    std::string const name = comparison.at("name");
    int const code =
        sh.run("plan @" + folder + name + ".flags --device cuda --memory 80GB --no-search --json plan.json")
            .code;
    CHECK_MESSAGE((code == 0 || code == 5), name);
    std::set<Json> planned;
    for (Json const& row : field(sh.json("plan.json"), "rows"))
      planned.insert(
          values_of(row, {"model", "world", "sharding", "precision", "offload", "batch", "sequence"}));
    for (Json const& row : comparison.at("rows")) {
      Json const shape =
          values_of(row, {"model", "ranks", "sharding", "precision", "offload", "batch", "sequence"});
      CHECK_MESSAGE(planned.contains(shape), name, " has no row ", shape);
    }
  }
}

TEST_CASE("compare published: rows that do not fit get the plan in brackets, and the published figures") {
  Published const sh;
  Json const rows = sh.rows(
      "@$TESSERA_SOURCE/examples/experiments/large-models.flags --data text.txt --device cpu --host-memory "
      "64GiB --offloads none,cpu_optimizer",
      R"(
      published, large-models: ZeRO-2 and ZeRO-3
      zs3, bf16, 8 ranks +3000 +- +680 +- +72 +\([0-9.]+\) +- +- +oom +optimal
      zs2, bf16, 8 ranks +OOM
      \(in brackets\): planned memory, and predicted times and speed-ups, of a row that did not run here
      published on: eight A100 80 GB
      here on: [^\n]+, ranks as threads of the processor
      assumed: batch 4 and sequence 512
      not equal: its tokens/s are batch x sequence
      cannot be: zs3, bf16, 8 ranks: 72 GB on each of eight
      not repeated here: 1 of the 4 rows
      rows: 4 oom)");
  CHECK(field(rows, 0, "published", "oom") == true);
  CHECK(field(rows, 1, "published", "figures", "step_ms") == 680);
  CHECK(field(rows, 1, "published", "ratios").empty());
  CHECK_FALSE(rows.at(2).contains("published"));
  // If a command line has the spelling of the publication, `compare` also compares its rows with the
  // published figures. If no row has the model, the ranks and the sizes of a published row, `compare` prints
  // a sentence about this.
  sh.passes(
      "compare --model layers=2,heads=2,channels=32 --data text.txt --seq-length 16 --num-steps 1 "
      "--warmup-steps 0 --stages 0 --json other.json",
      "published: no row here has the same model, ranks, recipe, batch and sequence as a row of stage-sweep, "
      "stage-sweep-7b");
}
