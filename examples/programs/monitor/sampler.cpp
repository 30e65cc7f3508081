// SPDX-License-Identifier: Apache-2.0
#include "monitor/sampler.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "cli/terminal.hpp"

namespace programs {
using namespace tessera;
namespace monitor {

namespace {

std::optional<double> mebibytes_of(std::optional<std::int64_t> const& bytes) {
  return bytes ? std::optional(cli::mebibytes(*bytes)) : std::nullopt;
}

/// The length, in nanoseconds, of the time that a value of NVML possibly describes: the time for which the
/// driver keeps a value, plus the time over which the value is averaged. nvml.h gives 1/6 s to 1 s for
/// utilisation and 1 s for power. On an H200, instantaneous power, energy and temperature were updated every
/// 59 to 141 ms. After a sudden change of the load, instantaneous power made half of its change within 39 to
/// 133 ms. According to "Part-time Power Measurements" (Yang, Adamek and Armour, SC 2024), instantaneous
/// power is a mean over 25 ms.
constexpr std::int64_t renewal = 150'000'000, instant_window = renewal + 50'000'000,
                       power_window = renewal + 1'000'000'000, utilization_window = 1'000'000'000;

/// Returns the multiple of 1 / scale that is nearest to a value.
double rounded(double value, double scale) { return std::round(value * scale) / scale; }

/// Returns the percentage of samples in which each throttle reason was active; null without samples.
/// `samples` maps a bit mask of reasons to its number of samples. If `slowing` is true, only reasons that
/// slow the GPU are returned.
Json throttle_shares(std::map<std::uint64_t, std::int64_t> const& samples, bool slowing) {
  if (samples.empty()) return nullptr;
  double all = 0.0;
  std::map<std::string, double> held;
  for (auto const& [reasons, count] : samples) {
    all += static_cast<double>(count);
    for (std::string const& name : cli::throttle_names(slowing ? cli::slowing(reasons) : reasons))
      held[name] += static_cast<double>(count);
  }
  Json shares = Json::object();
  for (auto const& [name, count] : held) shares[name] = 100.0 * count / all;
  return shares;
}

}  // namespace

Sampler::Sampler(nvml::Library const& gpus, CpuUse cpu, std::int64_t interval, std::int64_t cpu_interval)
    : library_(gpus), cpu_(std::move(cpu)), interval_(interval), cpu_interval_(cpu_interval) {
  text("time_s");  // has no statistics, since it only grows
  text("unix_s");
  number("cpu_util_pct", 1, {0, true});
  number("process_cpu_util_pct", 1, {0, true});
  number("process_mem_mb", 1);
  number("processes", 0);
  gpus_.resize(static_cast<std::size_t>(library_.size()));
  last_.resize(gpus_.size());
  for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu) {
    std::string const name = "gpu" + std::to_string(gpu) + "_";
    number(name + "util_pct", 0, {utilization_window});
    number(name + "mem_util_pct", 0, {utilization_window});
    number(name + "mem_used_mb", 0, {renewal});
    number(name + "power_w", 1, {power_window});
    number(name + "power_instant_w", 1, {instant_window});
    number(name + "power_average_w", 1, {power_window});
    number(name + "temp_c", 0, {renewal});
    number(name + "sm_clock_mhz", 0, {renewal});
    number(name + "mem_clock_mhz", 0, {renewal});
    text(name + "throttle_reasons");
    text(name + "energy_j");
  }
}

void Sampler::number(std::string name, int decimals, ColumnTime time) {
  names_.push_back(std::move(name));
  counts_.emplace_back(Counts(decimals));
  times_.push_back(time);
}

void Sampler::text(std::string name) {
  names_.push_back(std::move(name));
  counts_.emplace_back(std::nullopt);
  times_.emplace_back();
}

std::vector<std::optional<int>> Sampler::decimals() const {
  std::vector<std::optional<int>> decimals;
  for (auto const& counts : counts_)
    decimals.push_back(counts ? std::optional(counts->decimals()) : std::nullopt);
  return decimals;
}

void Sampler::put(Json& row, std::optional<double> const& value) {
  row.push_back(value ? counts_[row.size()]->add(*value) : Json(nullptr));
}

Json Sampler::take(std::int64_t now, double wall) {
  Json row = Json::array();
  double const seconds = 1e-9 * static_cast<double>(now);
  row.push_back(rounded(seconds, 1e6));
  row.push_back(rounded(wall + seconds, 1e6));
  CpuUse::Reading cpu;
  // CPU ticks are read at the sample nearest to each multiple of `cpu_interval_`. If a reading is so late
  // that the next reading would follow after less than half of this interval, the next reading is skipped.
  if (now + std::min(interval_, cpu_interval_) / 2 >= cpu_due_) {
    cpu = last_cpu_ = cpu_.read();
    while (cpu_due_ < now + cpu_interval_ / 2) cpu_due_ += cpu_interval_;
  }
  put(row, cpu.util_pct);
  put(row, cpu.process_util_pct);
  put(row, mebibytes_of(cpu.process_bytes));
  put(row, cpu.processes);
  for (std::size_t at = 0; at < gpus_.size(); ++at) {
    nvml::Sample const& sample = last_[at] = library_.sample(static_cast<int>(at));
    put(row, sample.utilization_pct);
    put(row, sample.memory_utilization_pct);
    put(row, mebibytes_of(sample.memory_used_bytes));
    put(row, sample.power_w);
    put(row, sample.power_instant_w);
    put(row, sample.power_average_w);
    put(row, sample.temperature_c);
    put(row, sample.sm_clock_mhz);
    put(row, sample.memory_clock_mhz);
    Gpu& gpu = gpus_[at];
    row.push_back(sample.throttle_reasons ? Json(cli::throttle_text(*sample.throttle_reasons))
                                          : Json(nullptr));
    if (sample.throttle_reasons) ++gpu.throttled[*sample.throttle_reasons];
    if (sample.energy_j) {
      if (!gpu.first_energy_j) gpu.first_energy_j = sample.energy_j;
      gpu.last_energy_j = sample.energy_j;
    }
    row.push_back(sample.energy_j ? Json(rounded(*sample.energy_j - *gpu.first_energy_j, 1e3))
                                  : Json(nullptr));
  }
  return row;
}

std::string Sampler::live() const {
  std::string line;
  auto const add = [&](std::optional<double> const& value, std::string const& unit) {
    if (value) line += " " + cli::fixed(*value, 0) + unit;
  };
  if (last_cpu_.util_pct) line += " | CPU";
  add(last_cpu_.util_pct, "%");
  if (last_cpu_.process_util_pct) line += ", command";
  add(last_cpu_.process_util_pct, "%");
  add(mebibytes_of(last_cpu_.process_bytes), " MiB");
  for (std::size_t at = 0; at < last_.size(); ++at) {
    line += " | GPU " + std::to_string(at);
    add(last_[at].utilization_pct, "%");
    add(last_[at].power_instant_w ? last_[at].power_instant_w : last_[at].power_w, " W");
    add(last_[at].temperature_c, " C");
    add(last_[at].sm_clock_mhz, " MHz");
    add(mebibytes_of(last_[at].memory_used_bytes), " MiB");
  }
  return line;
}

Json Sampler::column_summary() const {
  Json all = Json::object();
  for (std::size_t at = 0; at < names_.size(); ++at) {
    if (!counts_[at]) continue;
    auto const found = counts_[at]->summary();
    all[names_[at]] = found ? Json({{"samples", found->samples},
                                    {"mean", found->mean},
                                    {"std", found->std},
                                    {"min", found->min},
                                    {"max", found->max},
                                    {"median", found->median}})
                            : Json(nullptr);
  }
  return all;
}

Json Sampler::gpu_summary() const {
  Json all = Json::array();
  for (std::size_t at = 0; at < gpus_.size(); ++at) {
    Gpu const& gpu = gpus_[at];
    all.push_back(
        {{"index", at},
         {"energy_j",
          gpu.first_energy_j ? Json(rounded(*gpu.last_energy_j - *gpu.first_energy_j, 1e3)) : Json(nullptr)},
         {"throttle_reasons_pct", throttle_shares(gpu.throttled, false)}});
  }
  return all;
}

std::string Sampler::table(int width) const {
  cli::Table table({{"column", false, 100}, {"mean"}, {"std"}, {"min"}, {"max"}, {"median"}, {"samples"}});
  for (std::size_t at = 0; at < names_.size(); ++at) {
    auto const found = counts_[at] ? counts_[at]->summary() : std::nullopt;
    if (!found) continue;
    table.row({names_[at], cli::fixed(found->mean, 1), cli::fixed(found->std, 1), cli::fixed(found->min, 1),
               cli::fixed(found->max, 1), cli::fixed(found->median, 1), cli::grouped(found->samples)});
  }
  cli::Terminal terminal;
  terminal.width = width;
  std::string text = table.text(terminal);
  text += cli::left_out_text(table.left_out(terminal), terminal, "the output of --json has them");
  Json const gpus = gpu_summary();
  for (std::size_t at = 0; at < gpus_.size(); ++at) {
    std::string line = "gpu" + std::to_string(at);
    if (Json const& energy = gpus[at]["energy_j"]; energy.is_number())
      line += " | energy " + cli::fixed(energy.get<double>(), 1) + " J";
    if (Json const shares = throttle_shares(gpus_[at].throttled, true); shares.is_object()) {
      line += " | clocks held down:";
      for (auto const& [name, share] : shares.items())
        line += " " + name + " " + cli::fixed(share.get<double>(), 1) + "%";
      if (shares.empty()) line += " never";
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace monitor
}  // namespace programs
