// SPDX-License-Identifier: Apache-2.0
// Tests how the program `monitor` uses the trace that the program `train` writes. The trace contains marks:
// the times of steps and of phases (forward, backward, update). The tests check how marks are read, which
// traces are refused, and how samples are assigned to phases.
#include "monitor/phases.hpp"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/core/error.hpp"

#include "trace/marks.hpp"

namespace cli = programs::cli;
namespace fs = std::filesystem;
namespace monitor = programs::monitor;

namespace {

using monitor::Json;

/// Returns a valid trace of one rank. The trace has one step, with the number 3. The clock of the trace
/// starts at 5000 ns. On this clock, the step lasts from 10 us to 20 us. At 15 us the forward phase ends and
/// the backward phase begins.
Json sound() {
  auto const slice = [](char const* category, char const* name, int process, double begin, double took) {
    return Json({{"ph", "X"},
                 {"name", name},
                 {"cat", category},
                 {"pid", process},
                 {"tid", 1},
                 {"ts", begin},
                 {"dur", took},
                 {"args", {{"step", 3}}}});
  };
  return {{"displayTimeUnit", "ms"},
          {"otherData",
           {{"format", "tessera-trace"},
            {"version", 1},
            {"clock", "CLOCK_MONOTONIC"},
            {"start_ns", 5000},
            {"boot", "this"},
            {"ranks", 2}}},
          {"traceEvents",
           {{{"ph", "M"}, {"name", "process_name"}, {"pid", 1}, {"tid", 1}, {"args", {{"name", "rank 0"}}}},
            slice("step", "step 3", 1, 10, 10),
            slice("phase", "forward", 1, 10, 5),
            slice("phase", "backward", 1, 15, 4.5),
            slice("forward", "forward h.0", 1, 10, 5),
            slice("step", "step 3", 2, 11, 10),
            slice("phase", "forward", 2, 11, 6)}}};
}

struct Written {
  fs::path path = fs::temp_directory_path() / ("tessera-marks-" + std::to_string(::getpid()) + ".json");
  explicit Written(std::string const& text) { std::ofstream(path) << text; }
  explicit Written(Json const& json) : Written(json.dump()) {}
  ~Written() { fs::remove(path); }
};

std::string error_of(Written const& file, int rank = 0) {
  try {
    cli::read_marks(file.path, rank, "this");
  } catch (tessera::Error const& error) {
    CHECK(error.kind() == tessera::ErrorKind::data);
    std::string const text = error.what();
    CHECK(text.find(file.path.string() + ": ") == 0);
    CHECK(text.find('\n') == text.npos);
    return text;
  }
  return "none";
}

bool holds(std::string const& text, std::string const& part) { return text.find(part) != text.npos; }

}  // namespace

TEST_CASE("marks are steps and phases of one rank on the machine's clock") {
  Written const file(sound());
  cli::Marks const marks = cli::read_marks(file.path, 0, "this");
  CHECK(marks.ranks == 2);
  REQUIRE(marks.steps.size() == 1);
  CHECK(marks.steps[0].step == 3);
  CHECK(marks.steps[0].begin == 15000);
  CHECK(marks.steps[0].end == 25000);
  REQUIRE(marks.phases.size() == 2);
  CHECK(marks.phases[1].phase == 1);
  CHECK(marks.phases[1].begin == 20000);
  CHECK(marks.phases[1].end == 24500);
  cli::Marks const other = cli::read_marks(file.path, 1, "this");
  REQUIRE(other.phases.size() == 1);
  CHECK(other.phases[0].end == 22000);
  // Some kernels have no boot id. read_marks() then cannot check whether the trace was written since the last
  // start of this machine, and reads it without this check.
  CHECK(cli::read_marks(file.path, 0, "").steps.size() == 1);
}

TEST_CASE("marks that cannot be used are refused by what they are") {
  CHECK(holds(error_of(Written(std::string())), "empty"));
  CHECK(holds(error_of(Written(std::string("step forward 17\n"))), "damaged or not a trace: parse error"));
  std::string const whole = sound().dump();
  for (std::size_t const size : {std::size_t{1}, whole.size() / 2, whole.size() - 1})
    CHECK(holds(error_of(Written(whole.substr(0, size))), "damaged or not a trace: parse error"));
  CHECK(holds(error_of(Written(std::string(100, '['))), "nested more deeply than a trace"));
  for (char const* const text : {"[]", "7", "{}", R"({"traceEvents":[]})", R"({"otherData":{"format":"x"}})"})
    CHECK(holds(error_of(Written(std::string(text))), "not a trace that names its clock"));
  auto const changed = [](char const* field, Json const& value) {
    Json json = sound();
    json["otherData"][field] = value;
    return error_of(Written(json));
  };
  CHECK(holds(changed("version", 2), "a trace of version 2, but this monitor reads up to 1"));
  CHECK(holds(changed("version", "1"), "damaged"));
  CHECK(holds(changed("start_ns", -1), "damaged"));
  CHECK(holds(changed("start_ns", 1e300), "damaged"));
  CHECK(holds(changed("ranks", 0), "damaged"));
  CHECK(holds(changed("clock", "CLOCK_REALTIME"), "its clock is 'CLOCK_REALTIME'"));
  CHECK(holds(changed("boot", "that"), "written on another machine"));
  CHECK(holds(error_of(Written(sound()), 2), "has marks of 2 ranks, but --marks-rank is 2"));
  Json json = sound();
  json["traceEvents"].erase(1);
  CHECK(holds(error_of(Written(json)), "it has no step of rank 0"));
  auto const slice = [](int index, char const* field, Json const& value) {
    Json json = sound();
    json["traceEvents"][static_cast<std::size_t>(index)][field] = value;
    return error_of(Written(json));
  };
  CHECK(holds(slice(2, "ts", -1), "has no time or no step"));
  CHECK(holds(slice(2, "ts", 1e300), "has no time or no step"));
  CHECK(holds(slice(2, "dur", "5"), "has no time or no step"));
  CHECK(holds(slice(2, "args", 5), "has no time or no step"));
  CHECK(holds(slice(2, "pid", nullptr), "has no process"));
  CHECK(holds(slice(2, "name", "sideward"), "a phase that this monitor does not know"));
  CHECK(holds(slice(3, "ts", 14), "begins before the previous one has ended"));
  fs::path const nowhere = fs::temp_directory_path() / "tessera-no-such-marks.json";
  CHECK_THROWS_WITH_AS(cli::read_marks(nowhere, 0), doctest::Contains("no such file, so there are no marks"),
                       tessera::Error);
  CHECK_THROWS_WITH_AS(cli::read_marks(fs::temp_directory_path(), 0), doctest::Contains("not a regular file"),
                       tessera::Error);
  json = sound();
  json["traceEvents"].push_back(5);
  CHECK(holds(error_of(Written(json)), "damaged: 5 has no process"));
}

TEST_CASE("marks of another run are refused") {
  cli::Marks marks;
  marks.steps = {{3, -1, 5'000'000'000, 6'000'000'000}};
  CHECK_NOTHROW(monitor::check_overlap("t.json", marks, 5'500'000'000, 9'000'000'000));
  CHECK_NOTHROW(monitor::check_overlap("t.json", marks, 1, 5'000'000'000));
  CHECK_THROWS_WITH_AS(monitor::check_overlap("t.json", marks, 7'500'000'000, 9'000'000'000),
                       doctest::Contains("t.json: its steps ended 1.5 s before the first sample"),
                       tessera::Error);
  CHECK_THROWS_WITH_AS(monitor::check_overlap("t.json", marks, 1, 3'000'000'000),
                       doctest::Contains("its steps began 2.0 s after the last sample"), tessera::Error);
}

TEST_CASE("a value is of a phase when all its time is") {
  cli::Marks marks;
  marks.ranks = 1;
  marks.steps = {{1, -1, 100, 200}, {2, -1, 210, 310}};
  marks.phases = {{1, 0, 100, 150}, {1, 1, 150, 195}, {2, 0, 210, 260}, {2, 1, 260, 305}};
  // The columns of a sample measure in different ways. A value of the column "now" is measured at one
  // instant. A value of "mean" is the mean of the last 20 ns. A value of "since" covers the time since the
  // previous value. The column "why" has texts.
  monitor::PhaseFigures figures(marks, {"now", "mean", "since", "why"}, {1, 1, 1, std::nullopt},
                                {{}, {20}, {0, true}, {}});
  auto const add = [&](std::int64_t begin, std::int64_t end, Json const& since) {
    auto const place = figures.add(begin, end, {begin, begin, since, "none"});
    return (place.step ? std::to_string(*place.step) : "-") + " " + std::string(place.phase.value_or("-"));
  };
  CHECK(add(90, 91, 1) == "- -");
  // The monitor began to take this sample at 99 ns, before step 1, and ended at 101 ns, in step 1. The sample
  // is therefore in no phase.
  CHECK(add(99, 101, nullptr) == "- -");
  CHECK(add(110, 112, 2) == "1 forward");
  CHECK(add(120, 122, nullptr) == "1 forward");
  CHECK(add(140, 150, 3) == "1 forward");
  CHECK(add(149, 151, nullptr) == "1 -");
  CHECK(add(160, 161, 4) == "1 backward");
  CHECK(add(170, 171, 5) == "1 backward");
  CHECK(add(196, 197, nullptr) == "1 -");
  CHECK(add(205, 206, nullptr) == "- -");
  CHECK(add(300, 301, 6) == "2 backward");
  CHECK(add(400, 401, 7) == "- -");
  Json const json = figures.json();
  CHECK(json["first_step"] == 1);
  CHECK(json["last_step"] == 2);
  CHECK(json["windows_ms"]["since"] == "since_last");
  CHECK(json["windows_ms"]["mean"].get<double>() == doctest::Approx(20e-6));
  CHECK_FALSE(json["windows_ms"].contains("why"));
  Json const& forward = json["phases"]["forward"];
  CHECK(forward["stretches"] == 2);
  CHECK(forward["seconds"].get<double>() == doctest::Approx(100e-9));
  CHECK(forward["shortest_ms"].get<double>() == doctest::Approx(50e-6));
  CHECK(forward["samples"] == 3);
  CHECK(forward["columns"]["now"]["samples"] == 3);
  CHECK(forward["columns"]["mean"]["samples"] == 2);
  CHECK(forward["columns"]["mean"]["mean"] == 130.0);
  CHECK(forward["columns"]["since"]["samples"] == 1);
  CHECK(forward["columns"]["since"]["mean"] == 3.0);
  CHECK(forward["columns"]["since"]["std"].is_null());  // undefined for one value
  CHECK_FALSE(forward["columns"].contains("why"));
  Json const& backward = json["phases"]["backward"];
  // Two values of the column "mean" count in the phase backward: the value at 170 ns, whose 20 ns begin in
  // backward, and the value at 300 ns.
  CHECK(backward["columns"]["mean"]["samples"] == 2);
  CHECK(backward["columns"]["since"]["mean"] == 5.0);
  CHECK(json["phases"]["update"]["samples"] == 0);
  CHECK(json["phases"]["update"]["columns"]["now"].is_null());
  CHECK(json["phases"]["update"]["shortest_ms"].is_null());
  // The phase "steps" is the whole time from the begin of the first step to the end of the last step. All
  // samples count in it, except the samples at 90, 99 and 400 ns.
  CHECK(json["phases"]["steps"]["samples"] == 9);
  // The value of this column at 110 ns covers the time since 90 ns. 90 ns is before step 1, so the value does
  // not count.
  CHECK(json["phases"]["steps"]["columns"]["since"]["samples"] == 4);
  std::string const table = figures.table(200);
  CHECK(holds(table, "phases of rank 0 of 1, steps 1 to 2; mean +- std"));
  CHECK(holds(table, "3.0 +- -"));
  CHECK_FALSE(holds(table, "why"));
}

TEST_CASE("rows come back from their file as they were") {
  monitor::Spool spool;
  spool.add("[1,2]");
  spool.add("");
  spool.add(std::string(100000, 'x'));
  spool.rewind();
  CHECK(spool.next() == "[1,2]");
  CHECK(spool.next() == "");
  CHECK(spool.next() == std::string(100000, 'x'));
  CHECK_FALSE(spool.next());
}
