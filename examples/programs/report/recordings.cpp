// SPDX-License-Identifier: Apache-2.0
// Draws the values that the program `monitor` recorded over time: power, temperature, utilisation and memory.
#include <algorithm>
#include <cmath>

#include "report/figures.hpp"

namespace programs {
namespace reporting {

namespace {

using Values = std::vector<std::optional<double>>;

struct Part {
  char const *name, *title, *unit;
  std::vector<char const*> columns;  ///< the first of these columns that exists is used
  bool gpus;
};

/// Returns the columns of `recording` that belong in `part`, which is one chart of the figure. Each column
/// has the index of its GPU.
std::vector<std::pair<int, Values const*>> columns_of(Part const& part, Recording const& recording) {
  std::vector<std::pair<int, Values const*>> found;
  for (int gpu = 0; gpu < (part.gpus ? 64 : 1); ++gpu)
    for (char const* const column : part.columns) {
      Values const* const values =
          recording.column(part.gpus ? "gpu" + std::to_string(gpu) + column : std::string(column));
      if (!values) continue;
      found.emplace_back(gpu, values);
      break;
    }
  return found;
}

/// Returns one line for the columns of several GPUs. The line is their mean; a band reaches from the lowest
/// to the highest value.
Series together(std::vector<double> const& seconds,
                std::vector<std::pair<int, Values const*>> const& columns) {
  std::vector<double> x;
  Values y;
  for (std::size_t at = 0; at < seconds.size(); ++at)
    for (auto const& [gpu, column] : columns) {
      x.push_back(seconds[at]);
      y.push_back((*column)[at]);
    }
  return condensed(x, y, std::min(max_buckets, seconds.size()));
}

void add_part(Part const& part, Inputs const& inputs, Figures& figures) {
  bool const zero = part.unit != std::string("C"), several = inputs.recordings.size() > 1;
  LineChart chart{part.title, "seconds since the start", part.unit, {}, false, zero, false};
  std::size_t all = 0;
  bool means = false, averaged = false;
  for (Recording const& recording : inputs.recordings) {
    std::string const& source = inputs.sources[recording.source].label;
    std::string const before = several ? source + " " : std::string();
    auto const columns = columns_of(part, recording);
    if (columns.empty()) continue;
    if (columns.size() > (several ? 1 : max_series)) {
      averaged = true;
      if (++all > max_series) continue;
      chart.series.push_back(together(recording.seconds, columns));
      chart.series.back().label = before + std::to_string(columns.size()) + " GPUs";
      continue;
    }
    for (auto const& [gpu, values] : columns) {
      if (++all > max_series) continue;
      chart.series.push_back(condensed(recording.seconds, *values, max_buckets));
      means = means || !chart.series.back().band.empty();
      chart.series.back().label = part.gpus ? before + "GPU " + std::to_string(gpu) : source;
    }
  }
  if (chart.series.empty()) {
    figures.left_out.push_back(
        {part.title, std::string("no recording has it") +
                         (part.gpus ? ": there was no GPU, or the GPU does not report it" : "")});
    return;
  }
  std::string note;
  if (averaged) note += "The mean of all GPUs, with the lowest and highest of them.";
  if (means) note += "Each point is a mean of neighbouring samples, with their lowest and highest.";
  note += of_text(std::min(all, max_series), all, "lines, the first");
  figures.drawn.push_back({part.name, part.title, std::move(note), {draw(chart)}});
}

}  // namespace

Series condensed(std::vector<double> const& x, std::vector<std::optional<double>> const& y,
                 std::size_t buckets) {
  Series series;
  std::vector<std::size_t> known;
  for (std::size_t at = 0; at < std::min(x.size(), y.size()); ++at)
    if (y[at] && std::isfinite(*y[at])) known.push_back(at);
  std::size_t const count = std::min(std::max<std::size_t>(1, buckets), known.size());
  for (std::size_t bucket = 0; bucket < count; ++bucket) {
    std::size_t const begin = bucket * known.size() / count, end = (bucket + 1) * known.size() / count;
    double middle = 0.0, mean = 0.0, low = INFINITY, high = -INFINITY;
    for (std::size_t at = begin; at < end; ++at) {
      double const value = *y[known[at]];
      middle += x[known[at]] / static_cast<double>(end - begin);
      mean += value / static_cast<double>(end - begin);
      low = std::min(low, value);
      high = std::max(high, value);
    }
    series.points.push_back({middle, mean});
    series.band.emplace_back(low, high);
  }
  if (count == known.size()) series.band.clear();  // each point is one value, so the band has no height
  return series;
}

void add_recording_figures(Inputs const& inputs, Figures& figures) {
  if (inputs.recordings.empty()) {
    figures.left_out.push_back(
        {"Power, temperature, use and memory over time", "no recording was given (monitor --json FILE)"});
    return;
  }
  Part const parts[] = {
      {"power", "Power over time", "W", {"_power_instant_w", "_power_w"}, true},
      {"temperature", "Temperature over time", "C", {"_temp_c"}, true},
      {"gpu-use", "Utilisation of GPUs over time", "%", {"_util_pct"}, true},
      {"cpu-use", "Utilisation of cores over time", "%", {"cpu_util_pct"}, false},
      {"process-memory", "Memory of the processes over time", "MB", {"process_mem_mb"}, false}};
  for (Part const& part : parts) add_part(part, inputs, figures);
}

}  // namespace reporting
}  // namespace programs
