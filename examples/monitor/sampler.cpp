// SPDX-License-Identifier: Apache-2.0
#include "monitor/sampler.hpp"

#include <cstddef>
#include <utility>

#include "common/terminal.hpp"

namespace tessera {
inline namespace v0 {
namespace monitor {

namespace {

std::optional<double> mebibytes_of(std::optional<std::int64_t> const& bytes) {
  return bytes ? std::optional(cli::mebibytes(*bytes)) : std::nullopt;
}

/// Rounded as it is written.
double rounded(double value, double scale) { return std::round(value * scale) / scale; }

}  // namespace

Sampler::Sampler(nvml::Library const& gpus, CpuUse cpu, std::int64_t cpu_interval)
    : library_(gpus), cpu_(std::move(cpu)), cpu_interval_(cpu_interval) {
  text("time_s");  // what only grows has no mean
  text("unix_s");
  number("cpu_util_pct", 1);
  number("process_cpu_util_pct", 1);
  number("process_mem_mb", 1);
  number("processes", 0);
  gpus_.resize(static_cast<std::size_t>(library_.size()));
  last_.resize(gpus_.size());
  for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu) {
    std::string const name = "gpu" + std::to_string(gpu) + "_";
    number(name + "util_pct", 0);
    number(name + "mem_util_pct", 0);
    number(name + "mem_used_mb", 0);
    number(name + "power_w", 1);
    number(name + "power_instant_w", 1);
    number(name + "power_average_w", 1);
    number(name + "temp_c", 0);
    number(name + "sm_clock_mhz", 0);
    number(name + "mem_clock_mhz", 0);
    text(name + "throttle_reasons");
    text(name + "energy_j");
  }
}

void Sampler::number(std::string name, int decimals) {
  names_.push_back(std::move(name));
  counts_.emplace_back(Counts(decimals));
}

void Sampler::text(std::string name) {
  names_.push_back(std::move(name));
  counts_.emplace_back(std::nullopt);
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
  if (now >= cpu_due_) {
    cpu = last_cpu_ = cpu_.read();
    cpu_due_ = now + cpu_interval_;
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
    if (sample.throttle_reasons) {
      ++gpu.throttle_samples;
      for (auto const& reason : nvml::throttle_reasons)
        if ((*sample.throttle_reasons & reason.bit) != 0) ++gpu.throttled[reason.bit];
    }
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
    Json reasons = nullptr;
    if (gpu.throttle_samples > 0) {
      reasons = Json::object();
      for (auto const& reason : nvml::throttle_reasons)
        if (auto const count = gpu.throttled.find(reason.bit); count != gpu.throttled.end())
          reasons[std::string(reason.name)] =
              100.0 * static_cast<double>(count->second) / static_cast<double>(gpu.throttle_samples);
    }
    all.push_back(
        {{"index", at},
         {"energy_j",
          gpu.first_energy_j ? Json(rounded(*gpu.last_energy_j - *gpu.first_energy_j, 1e3)) : Json(nullptr)},
         {"throttle_reasons_pct", std::move(reasons)}});
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
  Json const gpus = gpu_summary();
  for (Json const& gpu : gpus) {
    std::string line = "gpu" + gpu["index"].dump();
    if (gpu["energy_j"].is_number())
      line += " | energy " + cli::fixed(gpu["energy_j"].get<double>(), 1) + " J";
    if (gpu["throttle_reasons_pct"].is_object()) {
      line += " | clocks held down:";
      for (auto const& [name, share] : gpu["throttle_reasons_pct"].items())
        line += " " + name + " " + cli::fixed(share.get<double>(), 1) + "%";
      if (gpu["throttle_reasons_pct"].empty()) line += " never";
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace monitor
}  // namespace v0
}  // namespace tessera
