// SPDX-License-Identifier: Apache-2.0
// The program `info`. It reports what this build and this machine can do, as text or as JSON.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tessera/comm/environment.hpp"
#include "tessera/data/tokens.hpp"
#include "tessera/io/file.hpp"
#include "tessera/io/io_engine.hpp"
#include "tessera/plan/report.hpp"
#include "tessera/train/any_trainer.hpp"

#include "cli/command_line.hpp"
#include "cli/launch.hpp"
#include "cli/outputs.hpp"
#include "cli/program.hpp"
#include "cli/terminal.hpp"
#include "cli/values.hpp"
#include "info/fitness.hpp"
#include "info/measure.hpp"
#include "info/probe.hpp"
#include "info/slots.hpp"
#include "machine/gpus.hpp"
#include "machine/machine.hpp"
#include "workload/models.hpp"

namespace cli = programs::cli;
using cli::Json;

namespace programs {
using namespace tessera;
namespace info {

namespace {

/// Returns a component that describes the launcher that started this process. The component is not okay if
/// the launcher's environment variables are incomplete.
Component launcher() {
  try {
    auto const launch = comm::launch_environment();
    if (launch.source == "none") return {"launched by", true, "no launcher: one process, ranks are threads"};
    return {"launched by", true, comm::describe(launch)};
  } catch (Error const& error) {
    return {"launched by", false, error.what()};
  }
}

bool is_another_rank() {
  try {
    return comm::launch_environment().rank > 0;
  } catch (Error const&) {  // `launcher` reports this error
    return false;
  }
}

Component instruction_set() {
  std::string const built = cli::compiled_for() + (cli::bf16_products() == "fp32" ? "" : " with bf16");
  std::string widest = "sse2";
  for (Json const& flag : cli::cpu_flags()) {
    if (flag == "avx") widest = "avx";
    if (flag == "avx2") widest = "avx2";
    if (flag == "avx512f") widest = "avx512";
    if (flag == "avx512_bf16") widest = "avx512 with bf16";
  }
  if (built == widest) return {"instruction set", true, built};
  return {"instruction set", false,
          "compiled for " + built + ", this CPU has " + widest +
              "; configure with -DTESSERA_NATIVE=ON for its speed"};
}

/// Returns a component that names the engine that reads and writes state on NVMe. The component is okay if
/// the engine is io_uring.
Component io_uring() {
  std::string description;
  std::string const engine(open_io_engine(nullptr, 1, description)->name());
  if (engine == "io_uring") return {"io_uring", true, "reads and writes state on NVMe"};
  return {"io_uring", false, description};
}

/// Returns a component that says whether NVML is available. NVML is NVIDIA's library that reads power, clocks
/// and temperatures.
Component nvml() {
  cli::GpuState const& gpus = cli::gpus_at_start();
  if (!gpus.reason.empty()) return {"NVML", false, gpus.reason};
  return {"NVML", true,
          "driver " + gpus.driver.value_or("of unknown version") + ", " + std::to_string(gpus.facts.size()) +
              (gpus.facts.size() == 1 ? " GPU" : " GPUs")};
}

/// Returns the settings and the current state of a GPU as text. Leaves out values that the GPU does not
/// report.
std::string gpu_text(nvml::Facts const& gpu, nvml::Sample const& now) {
  cli::Names parts;
  auto const add = [&](auto const& value, std::string const& unit) {
    if (value) parts.push_back(cli::fixed(static_cast<double>(*value), 0) + unit);
  };
  auto const mode = [&](char const* name, std::optional<bool> const& on) {
    if (on) parts.push_back(std::string(name) + (*on ? " on" : " off"));
  };
  parts.push_back(gpu.name.value_or("GPU " + std::to_string(gpu.index)));
  if (gpu.pci_bus_id) parts.push_back(*gpu.pci_bus_id);
  add(gpu.power_limit_w, " W at most");
  add(now.temperature_c, " C");
  add(now.sm_clock_mhz, " MHz");
  mode("ECC", gpu.ecc);
  mode("MIG", gpu.mig);
  mode("persistence", gpu.persistence);
  if (std::uint64_t const reasons = cli::slowing(now.throttle_reasons.value_or(0)); reasons != 0)
    parts.push_back("clocks held down by " + cli::throttle_text(reasons));
  if (gpu.processes) parts.push_back("processes " + std::to_string(gpu.processes->size()));
  return cli::joined(parts);
}

Component default_data() {
  std::error_code code;
  if (std::filesystem::is_directory(default_data_path, code))
    return {"default data", true, default_data_path};
  return {"default data", false,
          std::string(default_data_path) + " does not exist; install the package fortunes, or give --data"};
}

std::vector<Component> components(Driver const& driver) {
  Json const machine = cli::environment(device_facts(default_device()));
  std::vector<Component> all;
  all.push_back({"compiler", true, cli::compiler_name() + ", C++20"});
  all.push_back({"Eigen", true, cli::eigen_version()});
  all.push_back({"threads", true, std::to_string(cli::core_count()) + " cores for this process"});
  all.push_back(instruction_set());
  all.push_back({"CPU backend", true, std::to_string(registered_recipes().size()) + " recipes compiled in"});
  DeviceFacts const gpu = device_facts(Cuda::device);
  if (gpu.runtime.empty())
    all.push_back(
        {"CUDA backend", false, "not part of this build; train on the CPU, or build with -DTESSERA_CUDA=ON"});
  else
    all.push_back({"CUDA backend", true,
                   "CUDA " + gpu.runtime + ", cuBLAS " + gpu.products + ", " +
                       (gpu.transport.empty() ? "without NCCL" : "NCCL " + gpu.transport)});
  all.push_back(driver.component);
  all.push_back(nvml());
  all.push_back(probe_toolkit());
  all.push_back(probe_nccl());
  all.push_back(probe_cudnn());
  all.push_back(probe_mpi());
  all.push_back(io_uring());
  all.push_back(launcher());
  all.push_back(default_data());
  return all;
}

Json json_of(std::vector<Component> const& parts, Driver const& driver, std::vector<Disk> const& disks) {
  Json json = Json::object();
  json["schema_version"] = 1;
  json["environment"] = cli::environment(device_facts(default_device()));
  cli::add_gpus(json["environment"], cli::gpus_at_start(), device_facts(Cuda::device).addresses);
  json["components"] = Json::array();
  for (Component const& part : parts)
    json["components"].push_back(
        {{"name", part.name}, {"status", part.okay ? "OKAY" : "NO"}, {"detail", part.detail}});
  json["devices"] = Json::array();
  for (Gpu const& device : driver.devices)
    json["devices"].push_back({{"index", device.index},
                               {"name", device.name},
                               {"memory_bytes", device.memory_bytes},
                               {"capability", device.capability},
                               {"peers", device.peers}});
  json["disks"] = Json::array();
  for (Disk const& disk : disks)
    json["disks"].push_back({{"folder", disk.folder},
                             {"free_bytes", disk.free_bytes < 0 ? Json(nullptr) : Json(disk.free_bytes)},
                             {"total_bytes", disk.total_bytes < 0 ? Json(nullptr) : Json(disk.total_bytes)}});
  json["slots_device"] = name_of(default_device());
  json["slots"] = Json::object();
  for (Slot const& slot : slots(name_of(default_device()), unavailable_reason)) {
    Json choices = Json::object();
    for (Choice const& choice : slot.choices)
      choices[choice.name] = {{"status", choice.reason ? "NO" : "OKAY"},
                              {"reason", choice.reason ? Json(*choice.reason) : Json(nullptr)}};
    json["slots"][slot.title] = std::move(choices);
  }
  json["models"] = Json::object();
  for (std::string const& name : cli::model_names())
    json["models"][name] = cli::model_choice("--model", name).can_run() ? "OKAY" : "NO";
  json["families"] = Json::object();  // the syntax of --model for custom sizes
  for (ModelFamily const* family : model_families())
    json["families"][family->name] = cli::detail::form_of(*family);
  json["recipes"] = Json::array();
  for (RecipeTable const& recipe : registered_recipes()) json["recipes"].push_back(to_string(recipe));
  return json;
}

/// Returns a line with the state of a component: "name ........ [OKAY] detail".
std::string dotted(cli::Terminal const& terminal, Component const& part) {
  std::string const dots(part.name.size() < 24 ? 24 - part.name.size() : 2, '.');
  return "  " + part.name + " " + dots + " " +
         (part.okay ? terminal.green("[OKAY]") : terminal.red("[NO]  ")) + " " + part.detail + "\n";
}

std::string report(std::vector<Component> const& parts, Driver const& driver,
                   std::vector<Disk> const& disks) {
  cli::Terminal const terminal = cli::Terminal::of(STDOUT_FILENO);
  Json const machine = cli::environment(device_facts(default_device()));
  auto const text = [&](char const* field) {
    Json const& value = machine[field];
    return value.is_string() ? value.get<std::string>()
           : value.is_null() ? std::string("unknown")
                             : value.dump();
  };
  std::string out = terminal.bold("Machine") + "\n";
  auto const line = [&](std::string const& name, std::string const& value) {
    out += "  " + name + std::string(name.size() < 14 ? 14 - name.size() : 1, ' ') + value + "\n";
  };
  line("system", text("os") + ", " + text("kernel") + ", " + text("architecture"));
  line("CPU", text("cpu") + ", " + text("cores") + " cores");
  cli::Names flags;
  for (Json const& flag : machine["cpu_flags"]) flags.push_back(flag.get<std::string>());
  line("CPU flags", cli::joined(flags, " "));
  line("memory",
       (machine["memory_bytes"].is_number() ? bytes_text(machine["memory_bytes"].get<std::int64_t>())
                                            : std::string("unknown")) +
           ", available " + bytes_text(machine["memory_available_bytes"].get<std::int64_t>()));
  for (Disk const& disk : disks)
    line("disk", disk.folder + ": " +
                     (disk.free_bytes < 0
                          ? "unknown"
                          : bytes_text(disk.free_bytes) + " free of " + bytes_text(disk.total_bytes)));
  for (Gpu const& device : driver.devices) {
    std::string peers;
    for (int const peer : device.peers) peers += (peers.empty() ? ", reads " : " ") + std::to_string(peer);
    line("device " + std::to_string(device.index),
         device.name + ", " + bytes_text(device.memory_bytes) + ", capability " + device.capability + peers);
  }
  cli::GpuState const& gpus = cli::gpus_at_start();
  for (std::size_t at = 0; at < gpus.facts.size(); ++at)
    line("NVML GPU " + std::to_string(at), gpu_text(gpus.facts[at], gpus.samples[at]));
  out += "\n" + terminal.bold("Components") + "\n";
  for (Component const& part : parts) out += dotted(terminal, part);
  out += "\n" + terminal.bold("Policies of this build on device " + std::string(name_of(default_device()))) +
         "\n";
  for (Slot const& slot : slots(name_of(default_device()), unavailable_reason)) {
    cli::Names can;
    for (Choice const& choice : slot.choices)
      if (!choice.reason) can.push_back(choice.name);
    line(slot.title, cli::joined(can));
    for (Choice const& choice : slot.choices)
      if (choice.reason) line("", choice.name + ": " + *choice.reason);
  }
  cli::Names models, absent;
  for (std::string const& name : cli::model_names())
    (cli::model_choice("--model", name).can_run() ? models : absent).push_back(name);
  line("models", cli::joined(models));
  if (!absent.empty()) line("", "not in this build: " + cli::joined(absent));
  return out;
}

constexpr char examples[] =
    "Examples:\n"
    "  info                 a report for people\n"
    "  info --json          the same as JSON on standard output\n"
    "  info --json info.json\n"
    "  info --measure machine.json\n"
    "                       times operations, for plan and compare; info --measure --help lists its flags\n"
    "  info --fitness --model gpt2-xl\n"
    "                       how well this machine can train it; info --fitness --help lists its flags\n";

/// Returns the words of the command line. `--json` without a file becomes `--json=-`, which means standard
/// output.
std::vector<char const*> with_json_target(int argc, char const* const* argv) {
  std::vector<char const*> words;
  for (int at = 0; at < argc; ++at) {
    bool const alone = std::string_view(argv[at]) == "--json" &&
                       (at + 1 == argc || (argv[at + 1][0] == '-' && argv[at + 1][1] != '\0'));
    words.push_back(alone ? "--json=-" : argv[at]);
  }
  return words;
}

int run(int argc, char const* const* argv) {
  cli::CommandLine line("info", "Reports what this build and this machine can do.", examples);
  std::filesystem::path json;
  line.path("--json", "[FILE]", json,
            "JSON instead of the report; without FILE or with -, on standard output");
  bool fit = false, measured = false;
  line.toggle("--fitness", fit, "how well this machine, or a device, can train a --model");
  line.toggle("--measure", measured, "time the operations of steps on this machine into a file");
  cli::advise_on_launcher_flags(line, "info needs no launcher, so leave it out");
  std::vector<char const*> const words = with_json_target(argc, argv);
  auto const asks = [&](std::string_view flag) {
    return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
      return word == flag || word.starts_with(std::string(flag) + "=");
    });
  };
  if (asks("--fitness")) return fitness(static_cast<int>(words.size()), words.data());
  if (asks("--measure")) {
    // --help must work without the file that --measure requires
    std::vector<char const*> const help = {argv[0], "--help"};
    std::vector<char const*> const& given = asks("--help") || asks("-h") ? help : words;
    return measure(static_cast<int>(given.size()), given.data());
  }
  if (!line.parse(static_cast<int>(words.size()), words.data())) return 0;
  if (is_another_rank()) return 0;  // rank 0 prints the report for all ranks
  cli::ProgramFiles(line).check();
  if (!json.empty() && json != "-") check_writable(json);

  std::error_code code;
  std::filesystem::path const temporary = std::filesystem::temp_directory_path(code);
  std::vector<Disk> disks{disk_of(".")};
  if (!code) disks.push_back(disk_of(temporary));
  Driver const driver = probe_driver();
  std::vector<Component> const parts = components(driver);
  if (json.empty()) {
    std::cout << report(parts, driver, disks);
    return 0;
  }
  std::string const text =
      json_of(parts, driver, disks).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (json == "-")
    std::cout << text;
  else
    write_file(json, text);
  return 0;
}

}  // namespace

}  // namespace info
}  // namespace programs

int main(int argc, char** argv) {
  return cli::guarded([&] { return programs::info::run(argc, argv); });
}
