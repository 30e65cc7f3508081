// SPDX-License-Identifier: Apache-2.0
// Implements read_marks, which reads the times of steps and phases from a trace file.
#include "trace/marks.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

#include <nlohmann/json.hpp>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"

#include "cli/values.hpp"

namespace programs {
using namespace tessera;
namespace cli {

namespace {

using Json = nlohmann::ordered_json;

/// Returns the value of a field in nanoseconds. The file has the value in microseconds. Returns -1 if the
/// field is missing or not valid.
std::int64_t nanoseconds_in(Json const& event, char const* field) {
  auto const found = event.find(field);
  if (found == event.end() || !found->is_number()) return -1;
  double const value = found->get<double>() * 1e3;
  return value >= 0.0 && value < 9e15 ? std::llround(value) : -1;
}

std::int64_t whole_in(Json const& object, char const* field) {
  auto const found = object.find(field);
  return found != object.end() && found->is_number_unsigned() && found->get<std::uint64_t>() < (1ull << 53)
             ? found->get<std::int64_t>()
             : -1;
}

std::string text_in(Json const& object, char const* field) {
  auto const found = object.find(field);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

std::string boot_id() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

Marks read_marks(std::filesystem::path const& path, int rank, std::string const& boot) {
  constexpr int max_depth = 16;
  auto const fail = [&](std::string const& what) {
    throw Error(ErrorKind::data, files::path_text(path) + ": " + what);
  };
  std::error_code code;
  if (!std::filesystem::exists(path, code))
    fail("no such file, so there are no marks; have the command write it: train --trace FILE");
  if (!std::filesystem::is_regular_file(path, code)) fail("not a regular file, so there are no marks");
  std::ifstream file(path);
  if (!file) fail("cannot be read, so there are no marks");
  if (file.peek() == std::ifstream::traits_type::eof())
    fail("empty, so there are no marks; its writer may have been stopped");
  // A trace has one event for each run of an entry, a phase or a step. The parser drops the events of
  // entries, because only steps and phases are needed.
  Json::parser_callback_t const keep = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > max_depth) fail("nested more deeply than a trace; --marks needs a file from train --trace");
    if (event != Json::parse_event_t::object_end || depth != 2) return true;
    std::string const category = text_in(parsed, "cat");
    return category == "step" || category == "phase";
  };
  Json trace;
  try {
    trace = Json::parse(file, keep);
  } catch (Json::exception const& error) {
    std::string const what = error.what();  // "[json.exception.parse_error.101] parse error at line 3, ..."
    fail("damaged or not a trace: " +
         files::printable(what.substr(std::min(what.find("] ") + 2, what.size()))));
  }
  std::string const foreign = "not a trace that names its clock; --marks needs a file from train --trace";
  if (!trace.is_object()) fail(foreign);
  Json const about = trace.value("otherData", Json());
  if (!about.is_object() || text_in(about, "format") != marks_format) fail(foreign);
  std::int64_t const version = whole_in(about, "version");
  if (version > marks_version)
    fail("a trace of version " + std::to_string(version) + ", but this monitor reads up to " +
         std::to_string(marks_version) + "; use the monitor of the same build as train");
  std::int64_t const start = whole_in(about, "start_ns"), ranks = whole_in(about, "ranks");
  Json const events = trace.value("traceEvents", Json());
  if (version < 1 || start < 0 || ranks < 1 || ranks > (1 << 20) || !events.is_array())
    fail("damaged: it lacks version, start_ns, ranks or traceEvents");
  if (text_in(about, "clock") != marks_clock)
    fail("its clock is " + in_quotes(text_in(about, "clock")) + ", but samples use " +
         std::string(marks_clock));
  if (std::string const its = text_in(about, "boot"); !its.empty() && !boot.empty() && its != boot)
    fail("written on another machine, or before this machine was restarted, so its times are not valid here");
  if (rank >= ranks)
    fail("has marks of " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") +
         ", but --marks-rank is " + std::to_string(rank));

  Marks marks;
  marks.rank = rank;
  marks.ranks = static_cast<int>(ranks);
  for (Json const& event : events) {
    auto const damaged = [&](char const* what) {
      fail("damaged: " + files::printable(event.dump(-1, ' ', false, Json::error_handler_t::replace)) + " " +
           what);
    };
    std::int64_t const process = whole_in(event, "pid");
    if (process < 1) damaged("has no process");
    if (process != rank + 1) continue;
    Mark mark;
    std::int64_t const begin = nanoseconds_in(event, "ts"), took = nanoseconds_in(event, "dur");
    Json const arguments = event.value("args", Json());
    mark.step = arguments.is_object() ? whole_in(arguments, "step") : -1;
    if (begin < 0 || took < 0 || mark.step < 1) damaged("has no time or no step");
    mark.begin = start + begin;
    mark.end = mark.begin + took;
    bool const whole = text_in(event, "cat") == "step";
    if (!whole) {
      auto const known = std::find(std::begin(phase_names), std::end(phase_names), text_in(event, "name"));
      if (known == std::end(phase_names)) damaged("is a phase that this monitor does not know");
      mark.phase = static_cast<int>(known - std::begin(phase_names));
    }
    std::vector<Mark>& list = whole ? marks.steps : marks.phases;
    if (!list.empty() && (mark.begin < list.back().end || mark.step < list.back().step))
      damaged("begins before the previous one has ended");
    list.push_back(mark);
  }
  if (marks.steps.empty()) fail("it has no step of rank " + std::to_string(rank));
  return marks;
}

}  // namespace cli
}  // namespace programs
