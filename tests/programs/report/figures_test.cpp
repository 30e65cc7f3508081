// SPDX-License-Identifier: Apache-2.0
// Tests the figures that the program `report` draws: their axes, text, marks and panels, and the sentences
// that compare rows of results.
#include "report/figures.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "report/axis.hpp"
#include "report/judge.hpp"
#include "report/svg.hpp"
#include "report/tables.hpp"

namespace reporting = programs::reporting;
using namespace programs::reporting;

namespace {

Row row_of(std::string const& sharding, double rate, double spread_pct, double peak, std::size_t source = 0) {
  Row row;
  row.source = source;
  row[Word::experiment] = sharding + "_" + std::to_string(static_cast<int>(rate));
  row[Word::status] = "ok";
  row[Word::model] = "tiny";
  row[Word::sharding] = sharding;
  row[Word::precision] = "fp32";
  row[Number::world] = 2.0;
  row[Number::batch] = 4.0;
  row[Number::sequence] = 64.0;
  row[Number::median_tokens_per_sec] = rate;
  row[Number::spread_pct] = spread_pct;
  row[Number::peak_gpu_mem_mb] = peak;
  return row;
}

Inputs material_of(std::vector<Row> rows) {
  Inputs inputs;
  for (Row const& row : rows) inputs.sources.resize(std::max(inputs.sources.size(), row.source + 1));
  for (std::size_t at = 0; at < inputs.sources.size(); ++at)
    inputs.sources[at].label = std::string(1, static_cast<char>('p' + at));
  inputs.rows = std::move(rows);
  return inputs;
}

std::size_t count(std::string const& text, std::string const& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

Figure const* figure(Figures const& figures, std::string const& name) {
  for (Figure const& one : figures.drawn)
    if (one.name == name) return &one;
  return nullptr;
}

}  // namespace

TEST_CASE("report: ticks are round, cover their values, and exist whatever the values are") {
  CHECK(ticks(0.0, 9.7, 5) == std::vector<double>{0.0, 2.0, 4.0, 6.0, 8.0, 10.0});
  CHECK(ticks(0.0, 1.0, 4).back() == doctest::Approx(1.0));
  double const nothing = std::nan("");
  for (auto const& [low, high] : std::vector<std::pair<double, double>>{
           {0.0, 0.0}, {5.0, 5.0}, {-3.0, -3.0}, {7.0, 2.0}, {0.0, 1e30}, {1e-30, 2e-30}, {nothing, 1.0}}) {
    auto const list = ticks(low, high, 5);
    REQUIRE(list.size() >= 2);
    CHECK(list.size() <= 50);
    CHECK(std::is_sorted(list.begin(), list.end()));
  }
  CHECK(ticks(5.0, 5.0, 5).front() >= 0.0);
}

TEST_CASE("report: numbers at axes and bars") {
  CHECK(tick_text(1500000.0, 500000.0) == "1.5M");
  CHECK(tick_text(20000.0, 5000.0) == "20k");
  CHECK(tick_text(1000.0, 200.0) == "1000");
  CHECK(tick_text(0.25, 0.05) == "0.25");
  CHECK(figure_text(12345.4) == "12,345");
  CHECK(figure_text(0.19449) == "0.194");
  CHECK(number_text(20500.0, 2) == "20,500.00");
  CHECK(number_text(-1234.5, 1) == "-1,234.5");
  CHECK(number_text(std::nullopt, 1) == "-");
  CHECK(coordinate(-0.001) == "0");
}

TEST_CASE("report: text is escaped for HTML and SVG, whatever bytes it holds") {
  CHECK(escaped("<script>alert('1')</script> & \"q\"") ==
        "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt; &amp; &quot;q&quot;");
  CHECK(escaped(std::string("a\0b\x1b[31m\x7f", 9)) ==
        "a\xEF\xBF\xBD"
        "b\xEF\xBF\xBD[31m\xEF\xBF\xBD");
  CHECK(escaped("\xC3\xA9 \xF0\x9F\x98\x80") == "\xC3\xA9 \xF0\x9F\x98\x80");
  // These bytes are invalid UTF-8: a byte that begins no character, an overlong form, a surrogate, and
  // truncated characters.
  for (std::string const bad : {"\xFF", "\xC0\xAF", "\xED\xA0\x80", "\xE3\x81", "\xF0\x9F\x98"})
    CHECK(escaped(bad).find("\xEF\xBF\xBD") == 0);
}

TEST_CASE("report: text is broken into lines that are no wider than their place") {
  std::string const words = "zs2 fp16 offload cpu_optimizer 4 ranks batch 8 sequence 2048";
  auto const lines = text_lines(words, 120.0, 9);
  REQUIRE(lines.size() > 2);
  std::string together;
  for (std::string const& line : lines) {
    CHECK(text_width(line) <= 120.0);
    together += (together.empty() ? "" : " ") + line;
  }
  CHECK(together == words);
  CHECK(text_lines(words, 1000.0, 3) == std::vector<std::string>{words});
  CHECK(text_lines("", 100.0, 3) == std::vector<std::string>{""});
  auto const cut = text_lines(std::string(400, 'x'), 100.0, 2);
  REQUIRE(cut.size() == 2);
  CHECK(cut.back().ends_with("x\xE2\x80\xA6"));
  // A line break never splits a character of several bytes.
  for (std::string const& line : text_lines("\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E\xE3\x81\xAE", 30.0, 2))
    CHECK(escaped(line) == line);
}

TEST_CASE("report: the frontier rises by more than rows vary, and leaves out what was not measured") {
  std::vector<Row> rows = {row_of("zs3", 100.0, 1.0, 10.0), row_of("zs2", 101.0, 1.0, 12.0),
                           row_of("zs1", 150.0, 1.0, 15.0), row_of("zs0", 149.0, 1.0, 20.0),
                           row_of("dp", 90.0, 1.0, 10.0)};
  rows.push_back(row_of("none", 900.0, 1.0, 1.0));
  rows.back()[Number::peak_gpu_mem_mb].reset();
  RowList list;
  for (Row const& row : rows) list.push_back(&row);
  RowList const best = frontier(list);
  REQUIRE(best.size() == 2);
  CHECK((*best[0])[Word::sharding] == "zs3");
  CHECK((*best[1])[Word::sharding] == "zs1");
  CHECK(is_faster(rows[2], rows[0]));
  CHECK_FALSE(is_faster(rows[1], rows[0]));
  rows[2][Number::spread_pct].reset();
  CHECK_FALSE(is_faster(rows[2], rows[0]));
}

TEST_CASE("report: what one source alone says does not tell rows apart, what two say differently does") {
  Inputs inputs = material_of({row_of("zs0", 1.0, 1.0, 1.0), row_of("zs1", 2.0, 1.0, 1.0)});
  inputs.rows[0][Word::attention] = "fused";
  RowList const rows = ok_rows(inputs.rows);
  CHECK(Labels(rows, inputs).of(*rows[0]) == "zs0");
  CHECK(Labels(rows, inputs).shared().find("fused") == std::string::npos);
  inputs.rows[1][Word::attention] = "reference";
  CHECK(Labels(rows, inputs).of(*rows[0]) == "zs0 attention fused");
  inputs.rows[1][Word::attention] = "fused";
  Labels const labels(rows, inputs);
  CHECK(labels.shared() == "tiny, fp32, 2 ranks, batch 4, sequence 64, attention fused");
  CHECK(labels.shared_briefly() == "tiny, fp32, 2 ranks, batch 4, sequence 64");
  inputs.rows[1][Word::sharding] = "zs0";
  CHECK(Labels(rows, inputs).of(*rows[1]) == "zs1_2");
}

TEST_CASE("report: a row with defaults only is named by its defaults") {
  Inputs inputs = material_of({row_of("zs3", 1.0, 1.0, 1.0), row_of("zs3", 2.0, 1.0, 1.0)});
  inputs.rows[0][Word::offload] = "none";
  inputs.rows[1][Word::offload] = "cpu_optimizer";
  RowList const rows = ok_rows(inputs.rows);
  CHECK(Labels(rows, inputs).of(*rows[0]) == "offload none");
  CHECK(Labels(rows, inputs).of(*rows[1]) == "offload cpu_optimizer");
  inputs.rows[1][Word::sharding] = "zs2";
  CHECK(Labels(rows, inputs).of(*rows[0]) == "zs3");
  // The name of a source is not a setting.
  inputs.rows[1][Word::sharding] = "zs3";
  inputs.sources = {Source(), Source()};
  inputs.sources[0].label = "first";
  inputs.sources[1].label = "second";
  inputs.rows[1].source = 1;
  CHECK(Labels(rows, inputs).of(*rows[0]) == "first offload none");
  CHECK(Labels(rows, inputs).of(*rows[1]) == "second offload cpu_optimizer");
}

TEST_CASE("report: panels have a dozen bars, and say which rows are left out") {
  std::vector<Row> rows;
  for (int at = 0; at < 60; ++at) {
    rows.push_back(row_of("zs" + std::to_string(at % 4), 100.0 + at, 1.0, 10.0));
    rows.back()[Word::offload] = "o" + std::to_string(at / 4);
    rows.back()[Word::precision] = at % 3 == 0 ? "bf16" : "fp32";
  }
  Inputs const inputs = material_of(std::move(rows));
  Figures const figures = figures_of(inputs);
  Figure const* const rate = figure(figures, "throughput");
  REQUIRE(rate);
  REQUIRE(rate->panels.size() == 2);
  CHECK(
      rate->note.find(
          "Shown are 24 of 60 rows: all groups, and in each group the 12 rows with the highest throughput") !=
      std::string::npos);
  CHECK(rate->note.find("All rows: tiny, 2 ranks, batch 4, sequence 64.") != std::string::npos);
  CHECK(rate->panels[1].find(">fp32</text>") != std::string::npos);
  // Each panel shows only its 12 fastest rows. In this panel, 159 is the highest rate. 101 is not one of the
  // 12 highest rates.
  CHECK(rate->panels[1].find(">159 ") != std::string::npos);
  CHECK(rate->panels[1].find(">101 ") == std::string::npos);
  for (std::string const& panel : rate->panels) CHECK(count(panel, "<rect") == 12);
}

TEST_CASE("report: a whisker that passes 0 ends there, and the axis begins there") {
  BarChart bars{"t", "ms", {}, "", {{"", {{"a", {10.0}, 25.0}}}}};
  std::string const panel = draw(bars).front();
  CHECK(panel.find("10.0 \xC2\xB1 25.0") != std::string::npos);
  // The whisker has one line and one end cap, at its upper end. Its lower end would be below the axis, so it
  // has no cap there.
  CHECK(count(panel, "class='w'") == 2);
  LineChart lines{"t", "x", "y", {{"a", {{1.0, 10.0, 25.0}, {2.0, 12.0, 1.0}}, {}, false}}};
  std::string const drawn = draw(lines);
  CHECK(drawn.find(">0</text>") != std::string::npos);
  CHECK(drawn.find(">-") == std::string::npos);
  CHECK(count(drawn, "class='w'") == 5);
  lines.series[0].points[0] = {1.0, 30.0, 25.0};
  CHECK(count(draw(lines), "class='w'") == 6);
}

TEST_CASE("report: ticks of ranks are whole, lines differ by colour, dash and mark") {
  std::vector<Row> rows;
  for (char const* const sharding : {"zs0", "zs3"})
    for (double const world : {1.0, 2.0, 4.0}) {
      rows.push_back(row_of(sharding, 100.0 * world * (sharding[2] == '3' ? 0.9 : 1.0), 1.0, 10.0));
      rows.back()[Number::world] = world;
    }
  Figures const figures = figures_of(material_of(std::move(rows)));
  Figure const* const scaling = figure(figures, "scaling");
  REQUIRE(scaling);
  std::string const& svg = scaling->panels.front();
  for (char const* const part : {">1</text>", ">2</text>", ">4</text>", ">zs0</text>", ">zs3</text>",
                                 ">ideal</text>", "class='ideal'", "l s1 d1", "l s2 d2"})
    CHECK_MESSAGE(svg.find(part) != std::string::npos, part);
  CHECK(svg.find(">1.00<") == std::string::npos);
}

namespace {

/// Returns rows with this sharding on 1, 2 and 4 ranks. Each row was trained twice for 2 + 10 steps of 0.5 s,
/// of which 0.1 s x (ranks - 1) were in collectives.
std::vector<Row> scaled_rows(std::string const& sharding) {
  std::vector<Row> rows;
  for (double const world : {1.0, 2.0, 4.0}) {
    rows.push_back(row_of(sharding, 100.0 * world, 1.0, 10.0));
    Row& row = rows.back();
    row[Number::world] = world;
    row[Number::repeats] = 2.0;
    row[Number::steps] = 12.0;
    row[Number::warmup] = 2.0;
    row[Number::train_time_s] = 10.0;
    row[Number::comm_time_s] = 0.1 * (world - 1.0);
  }
  return rows;
}

/// Returns whether the first panel of a figure has a point with this text, such as "zs0: 2, 5.00".
bool has_point(Figures const& figures, std::string const& name, std::string const& point) {
  Figure const* const found = figure(figures, name);
  return found && found->panels.front().find("<title>" + point + "</title>") != std::string::npos;
}

}  // namespace

TEST_CASE("report: throughput, total time and time in collectives over ranks are of one training") {
  Figures const figures = figures_of(material_of(scaled_rows("zs2")));
  CHECK(has_point(figures, "throughput-ranks", "measured: 4, 400"));
  CHECK(has_point(figures, "train-time-ranks", "measured: 4, 5.00"));
  CHECK(has_point(figures, "communication-ranks", "measured: 1, 0"));
  CHECK(has_point(figures, "communication-ranks", "measured: 4, 3.00"));
  CHECK(figure(figures, "train-time-ranks")->note.find("more ranks train on more samples") !=
        std::string::npos);
}

TEST_CASE(
    "report: a row that sends nothing spends no time in collectives, also if this time was not measured") {
  std::vector<Row> rows = scaled_rows("zs2");
  rows[0][Number::comm_bytes_per_step] = 0.0;
  rows[0][Number::comm_time_s].reset();
  CHECK(has_point(figures_of(material_of(std::move(rows))), "communication-ranks", "measured: 1, 0"));
}

TEST_CASE("report: a row without the measurement has no point, and rows with unequal steps have no line") {
  std::vector<Row> rows = scaled_rows("zs2");
  for (Row& row : rows) row[Number::comm_time_s].reset();
  rows[0][Number::steps] = 20.0;
  rows[1][Number::steps] = 30.0;
  Figures figures = figures_of(material_of(rows));
  CHECK(figure(figures, "throughput-ranks"));
  CHECK_FALSE(figure(figures, "train-time-ranks"));
  CHECK_FALSE(figure(figures, "communication-ranks"));
  CHECK(std::any_of(figures.left_out.begin(), figures.left_out.end(), [](LeftOut const& one) {
    return one.title == "Total training time over ranks" &&
           one.reason.find("equally many timed steps or samples") != std::string::npos;
  }));
  // If the numbers of samples are equal, the rows form a line: 40, 20 and 10 timed steps with 4, 8 and 16
  // samples each.
  for (std::size_t at = 0; at < rows.size(); ++at)
    rows[at][Number::steps] = 2.0 + 40.0 / *rows[at][Number::world];
  figures = figures_of(material_of(std::move(rows)));
  CHECK(has_point(figures, "train-time-ranks", "measured: 2, 5.00"));
  CHECK(figure(figures, "train-time-ranks")->note.find("the number of samples are constant") !=
        std::string::npos);
}

TEST_CASE("report: other programs are lines over ranks if they do the work of a line of Tessera") {
  Inputs inputs = material_of(scaled_rows("zs2"));
  inputs.sources.resize(2);
  inputs.sources[1].label = "rivals";
  auto const add = [&](std::string const& program, std::string const& precision) {
    for (Row row : scaled_rows("zs2")) {
      row.source = 1;
      row[Word::experiment] = program;
      row[Word::precision] = precision;
      row[Number::train_time_s] = 40.0;
      inputs.rivals.push_back({std::move(row), program, "", "", "A box", ""});
    }
  };
  add("DeepSpeed", "fp32");
  add("Other work", "bf16");
  Figures figures = figures_of(inputs);
  CHECK(has_point(figures, "train-time-ranks", "DeepSpeed: 2, 20.0"));
  CHECK(has_point(figures, "train-time-ranks", "Tessera measured: 2, 5.00"));
  CHECK(figure(figures, "train-time-ranks")->panels.front().find("Other work") == std::string::npos);
  CHECK(figure(figures, "scaling")->panels.front().find("DeepSpeed") == std::string::npos);
  for (char const* const program : {"A", "B", "C", "D", "E"}) add(program, "fp32");
  figures = figures_of(inputs);
  CHECK(figure(figures, "train-time-ranks")->panels.size() == 2);
  CHECK(figure(figures, "train-time-ranks")->panels.back().find("DeepSpeed: 2, 20.0") != std::string::npos);
}

TEST_CASE("report: many GPUs are one line with its lowest and highest") {
  Inputs inputs;
  inputs.sources.resize(1);
  Recording recording;
  recording.columns = {"time_s"};
  recording.values.resize(1);
  for (int gpu = 0; gpu < 8; ++gpu) {
    recording.columns.push_back("gpu" + std::to_string(gpu) + "_power_w");
    recording.values.emplace_back();
  }
  for (int at = 0; at < 10; ++at) {
    recording.seconds.push_back(at);
    for (int gpu = 0; gpu <= 8; ++gpu)
      recording.values[static_cast<std::size_t>(gpu)].push_back(gpu == 0 ? at : 600.0 + 10.0 * gpu);
  }
  inputs.recordings.push_back(recording);
  Figures figures = figures_of(inputs);
  Figure const* power = figure(figures, "power");
  REQUIRE(power);
  CHECK(power->note.find("mean of all GPUs") != std::string::npos);
  CHECK(count(power->panels.front(), "class='l ") == 1);
  CHECK(count(power->panels.front(), "band") == 1);
  inputs.recordings[0].columns.resize(4);
  figures = figures_of(inputs);
  power = figure(figures, "power");
  REQUIRE(power);
  CHECK(count(power->panels.front(), "class='l ") == 3);
  CHECK(power->panels.front().find(">GPU 2</text>") != std::string::npos);
  CHECK_FALSE(figure(figures, "temperature"));
  CHECK(figures.left_out.size() > 3);
}

TEST_CASE("report: many values are drawn as means with their lowest and highest") {
  std::vector<double> x;
  std::vector<std::optional<double>> y;
  for (int at = 0; at < 1000; ++at) {
    x.push_back(at);
    y.push_back(at % 10 == 0 ? std::nullopt : std::optional<double>(at % 2));
  }
  Series const series = condensed(x, y, 50);
  REQUIRE(series.points.size() == 50);
  CHECK(series.band[7] == std::pair(0.0, 1.0));
  CHECK(condensed(x, std::vector<std::optional<double>>(1000), 50).points.empty());
  CHECK(condensed({1.0, 2.0}, {5.0, 6.0}, 50).band.empty());
}
