// SPDX-License-Identifier: Apache-2.0
// Tests the program `report`, which makes pages from result files: the pages, their figures and tables, text
// from other sources in them, results of other programs (rivals), and flags and files that `report` must
// refuse.
#include <cmath>
#include <sstream>

#include "programs/harness.hpp"

using test::each, test::field, test::has, test::Json, test::matches, test::Shell, test::shows, test::table;

namespace {

struct Report : Shell {
  /// Writes a result file in the format of the program `compare`. Each line of `rows` gives one row of the
  /// results and has the form "experiment | JSON fields". The JSON fields are added to the usual fields of a
  /// row, or replace them.
  void document(std::string const& file, std::string const& rows, std::string const& command = "compare",
                std::string const& cpu = "A CPU") const {
    std::string text = R"({"schema_version": 3, "command": ")" + command +
                       R"(", "environment": {"host": "box", "cpu": ")" + cpu +
                       R"(", "cores": 2, "device": "cpu"}, "wall_s": 1.5, "rows": [)";
    for (auto const& row : table(rows))
      text += R"({"experiment": ")" + row.at(0) + R"(", "status": "ok", "model": "tiny", "device": "cpu",
        "precision": "fp32", "offload": "none", "recompute": "none", "world": 2, "batch": 4, "sequence": 64,
        "accumulation": 1, "avg_step_time_s": 0.1, "median_step_time_s": 0.1, "step_to_step_std_s": 0.001,
        "spread_pct": 1.0, "unsteady": false, "peak_gpu_mem_mb": 8.5, "planned_gpu_mem_mb": 8.5,
        "comm_time_s": 0.02, "comm_exposed_s": 0.01, "losses": [5.0, 4.0, 3.0], )" +
              row.at(1) + "},\n";  // in JSON with a repeated field, the last value counts
    text.replace(text.size() - 2, 1, "]}");
    write(file, text);
  }

  /// holds() checks that the file `file` contains all texts in the table `texts`. lacks() checks that it
  /// contains none of them.
  void holds(std::string const& file, std::string const& texts) const {
    for (auto const& row : table(texts))
      for (std::string const& one : row) CHECK_MESSAGE(has(text(file), one), file, " lacks ", one);
  }
  void lacks(std::string const& file, std::string const& texts) const {
    for (auto const& row : table(texts))
      for (std::string const& one : row) CHECK_MESSAGE(!has(text(file), one), file, " holds ", one);
  }
};

/// Runs commands in a folder with the subfolders `here` and `there`, which contain result files of two
/// machines.
struct Machines : Report {
  Machines() {
    std::string const measured = each("RANKS", "1 2", each("STAGE", "zs0 zs3", R"(
        STAGE_fp32_ranksRANKS | "sharding": "STAGE", "world": RANKS, "median_tokens_per_sec": RANKS000, "predicted_tokens_per_sec": 1234, "prediction_error_pct": -7.5)"));
    document("here/compare.json", measured + R"(
        zs0_large | "sharding": "zs0", "batch": 8, "sequence": 128, "status": "oom", "reason": "needs 9 GiB")",
             "compare --stages 0,3");
    document("there/compare.json", each("GRAPH", R"("sharding":"zs1","capture":"graph")", R"(
        zs1_fp32 | GRAPH, "median_tokens_per_sec": 4321.5, "batch": 2, "sequence": 32
        zs1_fp32_b8 | GRAPH, "median_tokens_per_sec": 4000, "batch": 8, "sequence": 32
        zs1_fp32_b8_s64 | GRAPH, "median_tokens_per_sec": 3000, "batch": 8, "sequence": 64)"),
             "compare --stages 1");
  }
};

/// Runs commands in a folder with result files of `compare` and of other programs (rivals).
struct Rivals : Report {
  std::string const work =
      R"("model": "tiny", "precision": "fp32", "batch": 4, "sequence": 64, "machine": "A box")";

  /// Writes a file of rivals (results of other programs). Each line of `rows` gives one result and has the
  /// form "program | tokens per second | other JSON fields".
  void rivals(std::string const& file, std::string const& rows) const {
    std::string text;
    for (auto const& row : table(rows))
      text += (text.empty() ? "{" : "},\n{") + work + R"(, "program": ")" + row.at(0) +
              R"(", "median_tokens_per_sec": )" + row.at(1) + ", " + row.at(2);
    write(file, R"({"schema_version": 1, "note": "said of all", "rivals": [)" + text + "}]}");
  }
  /// Writes a result file of `compare`, whose training ran on one rank. Each line of `rows` gives one row of
  /// the results and has the form "ZeRO stage | tokens per second | other JSON fields".
  void ours(std::string const& file, std::string const& rows, std::string const& cpu = "A CPU") const {
    std::string text;
    for (auto const& row : table(rows))
      text += row[0] + row[1] + R"( | "world": 1, "sharding": ")" + row[0] +
              R"(", "median_tokens_per_sec": )" + row[1] + ", " + row.at(2) + "\n";
    document(file, text, "compare", cpu);
  }

  /// Writes ours.json, which has results of `compare` with the ZeRO stages 0, 1 and 3, and rivals.json, which
  /// has results of other programs.
  Rivals() {
    ours("ours.json", R"(
        zs0 | 1000 | "spread_pct": 0.01
        zs1 | 999 | "spread_pct": 0.01
        zs3 | 997 | "spread_pct": 0.01
        zs0 | 1500 | "batch": 8)");
    rivals("rivals.json", R"(
        Swift <b> | 9000 | "version": "7.5", "date": "2026-01-31", "std_tokens_per_sec": 12, "peak_gpu_mem_mb": 2.5
        Staged | 400 | "sharding": "zs1", "note": "one <i>note</i>"
        Staged | 300 | "sharding": "zs3", "peak_gpu_mem_mb": 7
        Swift <b> | 12345 | "world": 2)");
  }
};

std::string const of_1000 = R"("params": 1000, "trainable_params": )";

/// 14 rivals (results of the programs P1 to P14) with ZeRO stage 0. Pn has n tokens per second.
std::string const fourteen = each("N", "1 2 3 4 5 6 7 8 9 10 11 12 13 14", R"(PN | N | "sharding": "zs0")");

/// Whether the property `property` of a JSON schema accepts the value `value`.
bool accepts(Json const& property, Json const& value) {
  std::string const types = property.at("type").dump();
  if (value.is_null()) return has(types, "null");
  if (value.is_string()) {
    std::string const text = value;
    return has(types, "string") && text.size() >= property.value("minLength", 0U) &&
           std::regex_search(text, std::regex(property.value("pattern", ""))) &&
           (!property.contains("enum") || has(property.at("enum").dump(), value.dump()));
  }
  double const number = value;
  return (has(types, "number") || (has(types, "integer") && number == std::floor(number))) &&
         number >= property.value("minimum", -HUGE_VAL) && number <= property.value("maximum", HUGE_VAL) &&
         number > property.value("exclusiveMinimum", -HUGE_VAL);
}

}  // namespace

TEST_CASE("report: a page has all figures, names its sources, and loads nothing from outside") {
  Machines const sh;
  sh.write("monitor.json", R"({"schema_version": 1, "command": "monitor -- train", "environment": {},
    "columns": ["time_s", "cpu_util_pct", "gpu0_power_w", "gpu0_temp_c"],
    "samples": [[0, 10, 100, 40], [1, 90, 600, null], [2, 95, 620, 61]]})");
  sh.passes("report here there monitor.json --html page.html --title 'Two machines'", R"(
      \n(left out Planned memory of the device by category: no plan was given|[2-9] figures are left out because their data is missing; the page has the reasons)\n
      wrote page.html)");
  sh.document("one.json", R"(zs0_fp32 | "sharding": "zs0", "median_tokens_per_sec": 1)");
  std::string const lines = sh.passes(
      "report one.json --html one.html",
      R"(\n1[0-9] figures are left out because their data is missing; the page has the reasons\nwrote one\.html\n$)");
  CHECK(matches(lines, "left out").size() == 1);
  CHECK(matches(sh.passes("report one.json --svg figures"), "\nleft out [^\n]+: no ").size() > 10);
  for (std::string const figure :
       {"throughput", "scaling", "latency", "latency-map", "trade-off", "loss", "throughput-ranks",
        "communication", "memory", "plan", "power", "temperature", "cpu-use"})
    sh.holds("page.html", "id='figure-" + figure + "'");
  sh.holds("page.html", R"(
      <title>Two machines</title> | >here</td> | >there</td> | oom: needs 9 GiB | A CPU
      train --from here/compare.json --row zs3_fp32_ranks2
      prefers-color-scheme:dark | @media print | default-src 'none'
      >predicted | >prediction off | >1,234< | >-7.5<)");
  sh.lacks("page.html", ">capture<");  // only the results in `there` have this column
  std::string const page = test::replaced(sh.text("page.html"), "xmlns='http://www.w3.org/2000/svg'", "");
  CHECK(
      matches(page, R"(https?:|src=|url\(|@import|<link|<img|<iframe|fetch\(|XMLHttp|href='[^#'])").empty());
}

TEST_CASE("report: --html - prints only the page on standard output") {
  Machines const sh;
  auto const end = sh.run("report here --html -");
  CHECK(end.code == 0);
  CHECK(end.out.starts_with("<!DOCTYPE html>"));
  CHECK(has(end.err, "read here/compare.json: compare, 5 rows"));
}

TEST_CASE("report: figures are files that Markdown shows, and figures of an earlier report give a warning") {
  Machines const sh;
  sh.passes("report here there --svg figures --markdown page.md");
  sh.holds("figures/throughput.svg", "<svg xmlns= | width='400' height=' | <style> | fill:#0067a6 | </svg>");
  sh.lacks("figures/throughput.svg", "var(");  // only browsers support variables
  shows(sh.text("page.md"), R"(
      # Training runs compared
      !\[Throughput\]\(figures/throughput.svg\)
      \| source \|
      `train --from here/compare.json --row zs0_fp32_ranks1`
      4,322 \+- 43 tokens/s)");
  auto const end = sh.run("report here --svg figures");
  CHECK(end.code == 0);
  CHECK(end.err ==
        "warning: figures holds figures that do not belong to this report: latency-map.svg, latency.svg; "
        "remove them\n");
}

TEST_CASE("report: published figures have ours, both deviations and the ratio next to them") {
  Machines const sh;
  sh.document("published.json", R"(
      zs0_fp16 | "sharding": "zs0", "median_tokens_per_sec": 30000, "published": {"comparison": "zero-stages-gpt2", "machine": "an H100", "figures": {"tokens_per_sec": 23173.73, "step_s": 0.185223}, "deviations": {"tokens_per_sec": 84.275070}, "ours": {"tokens_per_sec": 30000, "step_s": 0.0703}, "our_deviations": {"tokens_per_sec": 12.5, "step_s": 0.0000396}, "ratios": {"tokens_per_sec": 1.2945, "step_s": 0.38}, "oom": false, "cannot_be": null}
      zs1_fp16 | "sharding": "zs1", "median_tokens_per_sec": 30000, "published": {"comparison": "zero-stages-gpt2", "machine": "an H100", "figures": {"peak_gb": 52, "of_a_newer_version": 1}, "oom": false, "cannot_be": "52 GB: 16 bytes a parameter are 108 GB"})");
  sh.passes("report published.json --html page.html --markdown page.md");
  sh.holds("page.html", "<h2>Published figures</h2>");
  shows(sh.text("page.md"), R"(
      zero-stages-gpt2 \| zs0 \| tok/s \| 23,173\.73 \| 84\.3 \| 30,000 \| 12\.5 \| 1\.29
      zero-stages-gpt2 \| zs0 \| s/step \| 0\.185223 \| - \| 0\.0703 \| 0\.000040 \| 0\.38
      zero-stages-gpt2 \| zs1 \| peak GB \| 52 \| - \| - \| - \| -
      zero-stages-gpt2 \| zs1 \| `of_a_newer_version` \| 1 )");
  sh.holds("page.md", " Cannot be: zs1: 52 GB: 16 bytes a parameter are 108 GB. ");
  sh.passes("report here --html without.html");
  sh.lacks("without.html", "<h2>Published figures</h2>");
}

TEST_CASE("report: --published compares the rows of a file that has no published figures") {
  Machines const sh;
  std::string const recorded = "\"$TESSERA_SOURCE\"/docs/results/h200-2026-11-27/scaling-gpt2.json";
  sh.passes("report " + recorded + " --markdown without.md");
  sh.lacks("without.md", "Published figures");
  sh.passes("report " + recorded + " --published scaling-gpt2,zero-medium --markdown page.md");
  shows(sh.text("page.md"), R"(
      scaling-gpt2, DP, DDP, ZeRO-2 and ZeRO-3 .* published on 1, 2 and 4 L4 .* Source: .* Not equal: .*
      \| scaling-gpt2 \| zs3 offload cpu.*optimizer 2 ranks \| speed-up \| 1\.575 \| - \| 2\.00 \| - \| 1\.27 \|)");
  sh.lacks("page.md", "zero-medium, ");
  CHECK(sh.run("report " + recorded + " --published nothing --markdown x.md").code == 2);
  sh.passes("report " + recorded + " --published zero-medium --markdown none.md",
            "no row has the same model, ranks, recipe, batch and sequence as a published row of zero-medium");
  // An older file has published figures without ours.
  sh.passes(
      "report \"$TESSERA_SOURCE\"/docs/results/h200-2026-11-25/zero-stages-gpt2.json --published "
      "zero-stages-gpt2 --markdown old.md");
  shows(sh.text("old.md"), R"(zero-stages-gpt2 \| zs0 fp16 \| tok/s \| [0-9,.]+ \| 84\.3 \| 530,271)");
}

TEST_CASE("report: the CSV has all rows with the columns of results, and an absent value is empty") {
  Machines const sh;
  sh.passes("report here there --csv all.csv");
  CHECK(sh.passes("wc -l < all.csv") == "9\n");
  shows(sh.passes("head -n 2 all.csv"), R"(
      ^source,program,file,experiment,model,device,sharding,.*,median_tokens_per_sec,.*,unsteady\n
      \nhere,compare,here/compare.json,zs0_fp32_ranks1,tiny,cpu,zs0,fp32,none,none,,,.*,1000,.*,false\n$)");
}

TEST_CASE("report: --summarize combines the step logs of earlier runs") {
  Machines const sh;
  for (std::string const run : {"1", "2", "3"})
    sh.write("old/zs2_fp16_ranks4_bs4_sl64/run" + run + "/step_log.csv",
             "global_step,step_time_s,tokens_per_sec,gpu_max_mem_mb,loss\n1,9,1,8.5,5\n2,0." + run + "," +
                 run + "00,8.5,4\n3,0." + run + "," + run + "00,8.5,3\n");
  sh.passes("report --summarize old --csv old.csv --html old.html");
  sh.passes("sed -n 2p old.csv",
            "^old,step logs,old,zs2_fp16_ranks4_bs4_sl64,,cpu,zs2,fp16,none,.*,"
            "3,3,1,0,200,100,50,0.2,0.2");
  sh.passes("report here --summarize old --warmup 2 --markdown both.md");
  sh.holds("both.md", "3 runs; the first 2 steps of each were not timed | step logs");
}

TEST_CASE("report: foreign text is escaped in pages, figures, tables, commands and file names") {
  Report const sh;
  std::string const evil = R"(<script>alert(1)</script>\"'&|`\u0007\u001b]\u202e)", long_text(500, 'x');
  sh.document("<b>.json", each("EVIL", evil, each("LONG", long_text, R"(
      EVIL | "sharding": "EVIL", "model": "EVIL", "median_tokens_per_sec": 10
      LONG | "sharding": "LONG", "model": "EVIL", "median_tokens_per_sec": 20
      ]]></svg></style><img> | "sharding": "=1+1", "model": "EVIL", "status": "failed", "reason": "EVIL")")),
              evil);
  sh.passes(
      "report '<b>.json' --html evil.html --svg evil --markdown evil.md --csv evil.csv "
      "--title '</title><script>'");
  CHECK(matches(sh.text("evil.html"), "<script").size() == 1);  // the script of the page itself
  sh.lacks("evil.html", "</svg></style> | <img | <b> | onerror=");
  sh.holds("evil.html", "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;");
  sh.lacks("evil.md", "<script | <img");
  sh.passes("! grep -E '<script|</svg></style>' evil/*.svg");
  for (std::string const file : {"evil.html", "evil.md", "evil/throughput.svg"}) sh.lacks(file, "\a");
}

TEST_CASE("report: a page of 5,000 rows hides most of them, and its figures say how many they omit") {
  Report const sh;
  sh.passes(R"({
      echo '{"schema_version": 3, "command": "compare", "environment": {}, "rows": ['
      seq 5000 | sed 's/.*/{"experiment": "e&", "status": "ok", "sharding": "zs&", "median_tokens_per_sec": &, "spread_pct": 1},/'
      echo '{"experiment": "last", "status": "ok"}]}'
    } > many.json; report many.json --html many.html)");
  CHECK(sh.text("many.html").size() <= 3000000);
  sh.holds("many.html", "Show all 5,001 rows | <tbody hidden> | Shown are 12 of 5,000 rows");
}

TEST_CASE("report: --help shows the outputs, the flags of step logs and examples") {
  Report const sh;
  sh.passes("report --help", "--html\n --svg\n --markdown\n --csv\n --summarize\n --warmup\n Examples:");
}

TEST_CASE("report: rows of other programs have a figure, a table and CSV lines, and are not among our rows") {
  Rivals const sh;
  sh.passes("report ours.json rivals.json --html page.html --svg figures --markdown page.md --csv all.csv",
            R"(read rivals.json: other programs, 4 rows\n  said of all\n)");
  sh.holds("page.html", R"(
      id='figure-rivals' | id='figure-stages' | <h2>Other programs</h2> | Other programs than Tessera
      one &lt;i&gt;note | 2026-01-31 | A box | Fastest: zs0 batch 8 with 1,500 | Other programs: 4 rows in a separate table
      Of several rows of a program, the fastest is shown. 1 row of another program has no row of the same work here.
      whiskers are one deviation, over steps, or over repeats if there are several | not measured by compare)");
  sh.lacks("page.html", "<b> | 12,345<title | Fastest: Swift");
  sh.holds("figures/rivals.svg", R"(
      >Tessera zs0</text> | >Swift &lt;b&gt;</text> | >Staged zs1</text> | >9,000  | >1,000  | tiny, fp32, 4 x 64 tokens
      @media (prefers-color-scheme:dark) | fill:#0067a6 | fill:#5ab1ea | svg .paper{fill:#fff}
      svg .paper{fill:#15171b} | fill='#fff' class='paper')");
  // The figure must contain no CSS variables. It must contain no rival whose work (model, ranks, sizes)
  // differs from the work of every row here. Of each program it must contain only the fastest row.
  sh.lacks("figures/rivals.svg", "var( | 12,345 | 1,500 | Staged zs3 | 8 x 64");
  sh.holds("figures/stages.svg", R"(
      >Tessera zs0</text> | >Tessera zs3</text> | >Staged zs1</text> | >Staged zs3</text> | >peak MB of a rank</text>)");
  sh.lacks("figures/stages.svg", "Swift");
  sh.lacks("figures/throughput.svg", "Swift | 9,000");
  sh.holds("page.md", "## Other programs | ![Throughput of Tessera and other programs](figures/rivals.svg)");
  CHECK(sh.passes("wc -l < all.csv") == "9\n");
  sh.passes("sed -n 6p all.csv", "^rivals,Swift <b>,rivals.json,Swift <b>,tiny,,,fp32,none,none,");
  // The bars of Tessera (our rows) are first. The bars of the rivals follow in the order of their speed. The
  // bars of each program have their own colour.
  std::string const svg = sh.text("figures/rivals.svg");
  std::size_t at = 0;
  for (std::string const next :
       {">Tessera zs0<", "class='f1'", ">Swift ", "class='f2'", ">Staged zs1<", "class='f3'"})
    CHECK_MESSAGE((at = svg.find(next, at)) != std::string::npos, next);
}

TEST_CASE("report: without rivals, or without our row of the same work, the page says so") {
  Rivals const sh;
  sh.passes("report rivals.json --html alone.html");
  sh.holds("alone.html",
           "<h2>Other programs</h2> | no row of another program does the same work as a row here");
  sh.passes("report ours.json --html ours.html");
  sh.holds("ours.html", "no row of another program was given");
  sh.lacks("ours.html", "<h2>Other programs</h2> | Other programs:");
  // The row in other.json has an offload and another number of ranks than the rivals. It does other work, so
  // the page does not compare it with the rivals.
  sh.ours("other.json", R"(zs0 | 10 | "world": 2, "offload": "cpu_optimizer")");
  sh.passes("report other.json rivals.json --html other.html");
  sh.lacks("other.html", "id='figure-rivals'");
}

TEST_CASE("report: rivals are compared with models of their number of parameters, which all are trained") {
  Rivals const sh;
  std::string const rows = "zs0 | 500 | " + of_1000 + "1000\nzs1 | 999 | " + of_1000 + "10";
  sh.ours("sizes.json", rows + R"(
      zs0 | 700 | "params": 600, "trainable_params": 600)");
  sh.rivals("of_sizes.json", R"(
      Unsaid | 333 | "world": 1
      Said | 444 | "params": 1000, "std_tokens_per_sec": 40)");
  sh.passes("report sizes.json of_sizes.json --html sizes.html --svg sizes");
  // The standard deviation of the rival `Said` is 9 % of its rate, so its bar has the mark ~.
  sh.holds("sizes/rivals.svg", "tiny, fp32, 1,000 parameters, 4 x 64 tokens | >500  | >Said</text> | ~");
  sh.lacks("sizes/rivals.svg", "600 parameters | >700  | >999  | Unsaid");
  sh.holds("sizes.html", R"(
      1 row of another program has no row of the same work here. Of these 1 does not give &#39;params&#39;, in which rows here differ.
      Without 1 row that trains a part of the parameters. | no two rows differ only in their stage)");
  // All our rows have models of the same number of parameters. A rival is then compared with them even if it
  // does not give its number of parameters.
  sh.ours("size.json", rows);
  sh.rivals("of_size.json", R"(
      Unsaid | 333 | "world": 1
      Padded | 444 | "params": 1024)");
  sh.passes("report size.json of_size.json --svg size");
  sh.holds("size/rivals.svg", ">Unsaid</text> | >500 ");
  sh.lacks("size/rivals.svg", "Padded | >999  | parameters");
}

TEST_CASE("report: each of our machines has a group of bars, and bars that are not shown are counted") {
  Rivals const sh;
  sh.ours("here.json", "zs0 | 500 | " + of_1000 + "1000\nzs1 | 999 | " + of_1000 + "10");
  sh.ours("there.json", "zs0 | 500 | " + of_1000 + "1000", "Another CPU");
  sh.rivals("many.json", fourteen);
  sh.passes("report here.json there.json many.json --html many.html --svg many");
  sh.holds("many/rivals.svg", R"(
      4 x 64 tokens, Tessera on A CPU | 4 x 64 tokens, Tessera on Another CPU | >P14 zs0</text>)");
  sh.lacks("many/rivals.svg", ">P2 zs0</text>");
  sh.holds("many.html", "Tessera was measured on: A CPU; Another CPU. | Shown are 26 of 30 bars.");
}

TEST_CASE("report: the fastest row of each rival and stage is next to our row of that stage") {
  Rivals const sh;
  sh.ours("staged.json", "zs0 | 500 | " + of_1000 + "1000\nzs1 | 400 | " + of_1000 + "1000");
  sh.rivals("staged.json.rivals", fourteen + R"(P1 | 77 | "sharding": "zs0")");
  sh.passes("report staged.json staged.json.rivals --html staged.html --svg staged");
  sh.holds("staged/stages.svg", ">P1 zs0</text> | >77.0< | >P12 zs0</text>");
  sh.lacks("staged/stages.svg", ">P13 zs0</text>");
  sh.holds("staged.html", "Shown are 14 of 16 bars.");
}

TEST_CASE("report: rivals that violate their schema are refused") {
  Rivals const sh;
  // Each row of the table below is: content of the member 'rivals' | texts of the error. In the content, W is
  // replaced by the fields that describe the work of a rival, and P by all fields of a valid rival. If a
  // field is repeated, its last value counts.
  for (auto const& row : table(R"(
      [] | 'rivals' holds no row
      [7] | row 1: is not an object | docs/rivals.schema.json
      [{P}, {W, "median_tokens_per_sec": 1}] | row 2: lacks 'program'
      [{"program": "P", "median_tokens_per_sec": 1}] | row 1: lacks 'model'
      [{"program": "P", "model": "m", "precision": "p", "batch": 1, "sequence": 1, "median_tokens_per_sec": 1}] | row 1: lacks 'machine'
      [{"program": "P", "model": "m", "precision": "p", "machine": "a", "median_tokens_per_sec": 1}] | row 1: lacks 'batch'
      [{W, "program": "P"}] | lacks 'median_tokens_per_sec'
      [{P, "median_tokens_per_sec": 0}] | 'median_tokens_per_sec' is 0
      [{P, "median_tokens_per_sec": -1}] | 'median_tokens_per_sec' is below 0
      [{P, "median_tokens_per_sec": "1k"}] | 'median_tokens_per_sec' is not a number
      [{P, "world": 1.5}] | 'world' is not a whole number from 1 to
      [{P, "date": "31 May"}] | 'date' is '31 May' | 2026-01-31
      [{P, "tok_s": 1}] | a key 'tok_s' | median_tokens_per_sec
      [{P, "program": 7.5}] | 'program' is not text
      null | 'rivals' is not a list of rows
      {} | 'rivals' is not a list of rows
      [{P, "batch": 9007199254740993}] | 'batch' is not a whole number from 1 to 2^53 - 1
      [{P, "params": 1e30}] | 'params' is not a whole number from 1 to 2^53 - 1
      [{P, "date": "2026-13-01"}] | 'date' is '2026-13-01'
      [{P, "date": "2026-01-32"}] | 'date' is '2026-01-32'
      [{P, "sharding": "zs4"}] | 'sharding' is 'zs4' | dp or zs0 to zs3
      [{P, "program": "P "}] | 'program' is 'P ' | white space
      [{P, "program": " "}] | 'program' is ' ' | white space
      [{P, "program": "\ufeffP"}] | 'program' is | with white space at an end or an invisible character
      [{P, "program": "P\u200bQ"}] | 'program' is | with white space at an end or an invisible character
      [{P, "program": "P\tQ"}] | 'program' is | with white space at an end or an invisible character
      [{P, "program": "Plan"}] | is named 'Plan', like a program of Tessera
      [{P, "program": "compare"}] | is named 'compare'
      [{P, "program": "tessera 0.1"}] | is named 'tessera 0.1' | rows of Tessera must come from compare
      [1], "rows_of": 1 | a key 'rows_of'
      [1], "schema_version": 2 | schema_version 2 | newer program)")) {
    std::string const json =
        std::regex_replace(row[0], std::regex(R"(\{P)"), R"({W, "program": "P", "median_tokens_per_sec": 1)");
    sh.write("bad.json", R"({"schema_version": 1, "rivals": )" +
                             std::regex_replace(json, std::regex(R"(\{W)"), "{" + sh.work) + "}");
    sh.refuses("report", "4 | bad.json --html page.html | bad.json | " + row[1] + " | " + row.back());
  }
  sh.write("bad.json", R"({"rivals": [1]})");
  sh.refuses("report", "4 | bad.json --html page.html | 'schema_version'");
}

TEST_CASE("report: the schema of rivals has the keys that report reads, and both accept the same values") {
  Rivals const sh;
  std::string const schema = test::read(TESSERA_SOURCE "/docs/rivals.schema.json");
  Json const properties = test::field(Json::parse(schema), "$defs", "row", "properties");
  sh.rivals("keys.json", R"(P | 1 | "no": 1)");
  std::string const error = sh.run("report keys.json --html page.html").err, head = "their keys are ";
  REQUIRE(has(error, head));
  Json keys;  // each key has the value null; the keys are sorted
  for (std::string const& key : test::matches(error.substr(error.find(head) + head.size()), "[a-z_]+"))
    keys[key] = nullptr;
  CHECK(keys.size() == properties.size());
  for (auto const& property : properties.items()) {
    CHECK_MESSAGE(keys.contains(property.key()), property.key());
    for (Json const& value : Json::parse(R"([null, "", "zs3", 7, 0, 1.5, 9007199254740992])")) {
      INFO(property.key(), " of ", value);
      sh.rivals("value.json", "P | 1 | \"" + property.key() + "\": " + value.dump());
      CHECK(sh.run("report value.json --csv value.csv").code == (accepts(property.value(), value) ? 0 : 4));
    }
  }
}

TEST_CASE("report: wrong flags, outputs that are inputs, and outputs that cannot be written are refused") {
  Machines const sh;
  sh.passes(R"(
      cp here/compare.json good.json; ln -s good.json link.html; echo experiment > here/compare.csv
      mkdir figures; ln -s ../good.json figures/throughput.svg; echo text > text.txt)");
  sh.refuses("report", R"(
      2 | --html page.html | nothing to report | --summarize
      2 | good.json | no output is named | --html FILE
      2 | good.json --warmup 2 --html page.html | --warmup | --summarize DIR
      2 | good.json --hmtl page.html | --hmtl | --html
      2 | good.json ./good.json --html page.html | given twice
      2 | good.json --html good.json | --html 'good.json' | same file
      2 | good.json --html a.out --csv ./a.out | --html 'a.out' | --csv './a.out' | same file
      2 | good.json --html link.html | same file
      2 | good.json --svg figures | --svg 'figures/throughput.svg' | same file
      2 | good.json --svg - | --svg - | name of a folder
      2 | here --csv here/compare.csv | --csv 'here/compare.csv' | the input 'here/compare.csv' | same file
      1 | good.json --html no/page.html | no/page.html
      1 | good.json --svg text.txt | text.txt)");
}

TEST_CASE("report: absent, empty, foreign, damaged, truncated and too new files are refused") {
  Shell const sh;
  std::string const expand =
      R"(sed 's/RESULTS/{"schema_version": 3, "rows":/; s/SAMPLES/{"schema_version": 1, "columns":/' > )";
  // Each row of the table below is: file | content of the file | texts that the error message must contain.
  for (auto const& row : table(R"(
      empty.json |  | is empty
      blank.json | \040\040\n\040 | is empty
      words.txt | Once upon a time | is not a results file
      cut.json | RESULTS [\n{"experiment": "a", | line 2 | damaged or cut off
      list.json | [1, 2] | not the flat rows
      foreign.json | {"a": 1} | no list 'rows'
      unversioned.json | {"rows": [{"experiment": "a"}]} | 'schema_version'
      new.json | {"schema_version": 99, "rows": []} | schema_version 99 | newer program
      none.json | RESULTS []} | holds no row
      number.json | RESULTS [7]} | row 1 | is not an object
      nameless.json | RESULTS [{"status": "ok"}]} | row 1: lacks 'experiment'
      typed.json | RESULTS [{"experiment": "a", "status": "ok", "world": "two"}]} | row 1: 'world' is not a number
      negative.json | RESULTS [{"experiment": "a", "status": "ok", "avg_step_time_s": -1}]} | 'avg_step_time_s' is below 0
      huge.json | RESULTS [{"experiment": "a", "status": "ok", "world": 1e300}]} | 'world' is beyond 1e30
      huger.json | RESULTS [{"experiment": "a", "world": 1e999}]} | a number that is too large
      losses.json | RESULTS [{"experiment": "a", "status": "ok", "losses": ["x"]}]} | 'losses' holds a value that is not a number
      trace.json | {"traceEvents": []} | a trace | Perfetto
      run.jsonl | {"schema_version": 1, "config": {}}\n{"step": 1, "lo | line 2: is not a JSON object
      started.jsonl | {"schema_version": 1, "config": {}}\n | it has no step
      rows.csv | experiment,model\n | give the compare.json in the same folder
      samples.csv | time_s,unix_s\n | give the file of its --json
      timeless.json | SAMPLES ["a"], "samples": [[1]]} | lacks time_s
      ragged.json | SAMPLES ["time_s"], "samples": [[1], [1, 2]]} | sample 2: is not a list of 1 values
      silent.json | SAMPLES ["time_s"], "samples": []} | holds no sample)")) {
    sh.passes("printf '" + row[1] + "' | " + expand + row[0]);
    sh.refuses("report --html page.html",
               "4 | " + row[0] + " | " + row[0] + " | " + row[2] + " | " + row.back());
  }
  // This file is nested so deeply that the JSON library would overflow the stack.
  sh.write("deep.json", R"({"a": )" + std::string(200000, '[') + std::string(200000, ']') + R"(, "b": 1})");
  sh.passes("mkdir bare");
  sh.refuses("report --html page.html", R"(
      4 | deep.json | deep.json | nested more than 64 deep
      4 | gone.json | gone.json
      4 | bare | bare | holds no JSON file | --summarize)");
}

TEST_CASE("report: folders and step logs of --summarize that cannot be read are refused") {
  Shell const sh;
  sh.passes("mkdir bare; touch good.json");
  sh.refuses("report --html page.html --summarize", R"(
      4 | gone | gone: no such folder
      4 | good.json | good.json: is not a folder
      4 | bare | bare: contains no step_log.csv)");
  for (auto const& row : table(R"(
      HEAD\n | holds no step
      HEAD\n1,2\n | line 2: has 2 values, not 5
      HEAD\n1,x,1,1,1\n | line 2: step_time_s is 'x'
      a,b\n | line 1 is not the header
      \c | not the header)")) {
    sh.passes(
        "mkdir -p logs/a/run1; printf '%b' '" + row[0] +
        "' | sed "
        "s/HEAD/global_step,step_time_s,tokens_per_sec,gpu_max_mem_mb,loss/ > logs/a/run1/step_log.csv");
    sh.refuses("report --html page.html --summarize", "4 | logs | logs/a/run1/step_log.csv | " + row[1]);
  }
}

TEST_CASE("report: recorded results of one GPU have figures of the program, and no stage wins") {
  Report const sh;
  std::string const recorded = "\"$TESSERA_SOURCE\"/docs/results/h200-2026-11-25/";
  sh.passes("report " + recorded + "zero-stages-gpt2.json --markdown page.md --csv rows.csv");
  // The file is older than the columns of efficiency and verdict, so `report` computes them.
  sh.holds("page.md", R"(
    - Fastest: zs0 fp16 = zs1 fp16 = zs2 fp16 = zs3 fp16 with 530,271 +- 657 tokens/s.
    - Best efficiency: zs0 fp16 = zs1 fp16 = zs2 fp16 = zs3 fp16 with 147,391 +- 183 tokens/s per GB of device memory.
    - Observed: fp16 is 9.1 times as fast as fp32 at zs0, and uses 0.72 of its device memory.
    same program as zs0\_fp32\_gpus1\_bs32\_sl128
    efficiency, tokens/s per GB | training time, s | total time, s | loss reduction, %)");
  sh.lacks("page.md", "optimal | unnecessary | overkill");
  CHECK_FALSE(has(sh.text("page.md"), "| \\~1.0 |"));  // a speedup
  sh.passes("report " + recorded + "precisions.json --markdown page.md");
  sh.holds("page.md", R"(
    Observed: fp16 is 9.3 times as fast as fp32 at zs0, and uses 0.72 of its device memory
    Observed: tf32 is 4.2 times as fast as fp32)");
}

TEST_CASE("report: an older file with several programs gets verdicts, and the memory saved") {
  Report const sh;
  std::string const rows = R"(
    zs0 | "sharding": "zs0", "median_tokens_per_sec": 1000, "peak_gpu_mem_mb": MB, "speedup": 1, "speedup_uncertainty": 0, "speedup_against": "zs0", "first_loss": 4.0, "final_loss": 1.0
    zs1 | "sharding": "zs1", "median_tokens_per_sec": 800, "peak_gpu_mem_mb": 75, "speedup": 0.8, "speedup_against": "zs0"
    zs2 | "sharding": "zs2", "median_tokens_per_sec": 808, "peak_gpu_mem_mb": 75, "speedup": 0.81, "speedup_against": "zs0", "same_program_as": "zs1"
    zs3 | "sharding": "zs3", "median_tokens_per_sec": 500, "peak_gpu_mem_mb": 50, "speedup": 0.5, "speedup_against": "zs0")";
  auto const cells = [&](std::string const& name) {
    std::istringstream lines(sh.text("rows.csv"));
    std::string head, line, column;
    std::getline(lines, head);
    std::size_t at = 0, wanted = 0;
    for (std::istringstream columns(head); std::getline(columns, column, ','); ++at)
      if (column == name) wanted = at;
    std::string found;
    while (std::getline(lines, line)) {
      std::istringstream values(line);
      for (std::size_t each = 0; each <= wanted; ++each) std::getline(values, column, ',');
      found += (found.empty() ? "" : "; ") + column;
    }
    return found;
  };
  auto const read = [&](std::string const& mb, std::string const& gpus) {
    std::string text = each("MB", mb, rows);
    sh.document("old.json", text);
    std::string file = sh.text("old.json");
    for (std::size_t at = 0; (at = file.find("\"device\": \"cpu\"", at)) != file.npos; ++at)
      file.replace(at, 15, "\"device\": \"cuda\"" + (at < 200 ? gpus : std::string()));
    sh.write("old.json", file);
    sh.passes("report old.json --csv rows.csv");
  };
  // The smaller GPU has 2^30 bytes, of which zs0 uses a tenth.
  read("100", R"(, "gpus": [{"memory_bytes": 1073741824}, {"memory_bytes": 2147483648}])");
  CHECK(cells("device_limit_mb") == "1024; 1024; 1024; 1024");
  CHECK(cells("verdict") == "optimal; unnecessary; same program as zs1; overkill");
  CHECK(cells("memory_saved_pct") == "0; 25; 25; 50");
  CHECK(cells("loss_reduction_pct") == "75; ; ; ");
  CHECK(cells("speedup") == "1; 0.8; 0.8; 0.5");
  CHECK(cells("efficiency").starts_with("10240; 10922.6"));
  // With 70% of the memory in use, it is short.
  read("717", R"(, "gpus": [{"memory_bytes": 1073741824}])");
  CHECK(cells("verdict") == "optimal; works; same program as zs1; fallback");
  read("717", "");
  CHECK(cells("verdict") == "optimal; ; same program as zs1; ");
}

TEST_CASE("report: the error for a folder of checkpoints or logs says which file to give") {
  Report const sh;
  sh.passes(R"(mkdir -p "my run"/checkpoints/step-00000020 empty
    : > "my run"/checkpoints/step-00000020/trainer.json; : > "my run"/steps.jsonl)");
  sh.refuses("report --csv -", R"(
      4 | "my run" | my run: the folder holds no JSON file, but a log of train; give 'my run/steps.jsonl'
      4 | "my run"/checkpoints | my run/checkpoints: is a folder of checkpoints of train, which hold no results; give the file that train wrote with --log
      4 | "my run"/checkpoints/step-00000020 | is a folder of checkpoints of train
      4 | empty | empty: the folder holds no JSON file; name a file)");
}
