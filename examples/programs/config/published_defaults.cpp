// SPDX-License-Identifier: Apache-2.0
#include "config/published_defaults.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/slot_flags.hpp"
#include "cli/values.hpp"

namespace programs {
using namespace tessera;
namespace cli {
namespace {

Names const choices = {"own", "stage-sweep", "offload-sweep"};

/// Pairs of flags that mean the same: Tessera's name, and the name in the published comparisons. "" means
/// that the published comparisons lack the flag.
constexpr auto spellings = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"--batch", "--batch-size"},
    {"--sequence", "--seq-length"},
    {"--accumulation", "--grad-accum"},
    {"--steps", "--num-steps"},
    {"--warmup", "--warmup-steps"},
    {"--full", ""},
    {"--pairs", ""},
});

/// `names` are flags as the user wrote them. Returns two of them: the first name that is Tessera's spelling
/// of a flag, and the first name that is a published spelling of a flag. A name that is not found is "".
std::pair<std::string, std::string> spelled(Names const& names) {
  std::string own, published;
  for (auto const& name : names)
    for (auto const& [ours, theirs] : spellings) {
      if (own.empty() && name == ours) own = name;
      if (published.empty() && name == theirs) published = name;
    }
  return {own, published};
}

/// Returns whether a command line compares offloads and not stages. This is true if it lists offloads, or if
/// it has --nvme-path but neither --stages nor --strategies.
bool sweeps_offloads(CommandLine const& line) {
  if (line.given("--offloads")) return true;
  Names const* const strategies = line.on_line("--strategies");
  if (strategies == nullptr) return line.given("--nvme-path") && !line.given("--stages");
  Names const items = split_list("--strategies", *strategies);
  return std::any_of(items.begin(), items.end(),
                     [](auto const& item) { return slot_names<slot::offload>(item).has_value(); });
}

std::vector<FileSetting> settings_of(CommandLine const& line, std::string const& suite) {
  std::vector<FileSetting> settings;
  auto const set = [&](std::string const& flag, Names const& values = {}) {
    settings.push_back({flag, values, suite});
  };
  set("--models", {"gpt2"});
  set("--ranks", {"1"});
  set("--sequence", {"512"});
  set("--precisions", {"bf16"});  // the published programs use fp16 only if the GPU lacks bf16
  if (!line.given("--global-batch")) {
    set("--batch", {"4"});
    set("--accumulation", {"1"});
  }
  if (!line.given("--epochs") && !line.given("--samples")) set("--steps", {"20"});
  set("--warmup", {"5"});
  set("--learning-rate", {"1e-4"});  // with 1e-3 the 7B model diverges in fp16
  bool const strategies = line.given("--strategies"), offloads = suite == "offload-sweep";
  if (!offloads) set("--offloads", {"none"});
  if (offloads && !strategies && !line.given("--offloads")) {
    set("--strategies", {"none", "cpu_optimizer", "cpu_full"});
    if (line.given("--nvme-path")) settings.back().values.push_back("nvme");
  }
  if (offloads)
    set("--stages", {"3"});
  else if (!strategies)
    set("--stages", {"0", "1", "2", "3"});
  set("--published",
      offloads ? Names{"offload-sweep", "large-models"} : Names{"stage-sweep", "stage-sweep-7b"});
  set("--format", {"flat"});
  if (!line.given("--json") && !line.given("--csv")) set("--timestamp");
  return settings;
}

std::vector<FileSetting> choose(CommandLine const& line) {
  auto [own, published] = spelled(line.spelled());
  // Both programs have --strategies. A list of offloads without a flag in Tessera's spelling is the command
  // of the published comparison of offloads.
  if (own.empty() && published.empty() && line.on_line("--strategies") != nullptr && sweeps_offloads(line))
    published = "--strategies";
  std::string suite;
  if (Names const* const given = line.on_line("--defaults")) {
    suite = choice("--defaults", given->back(), choices);
  } else if (!published.empty()) {
    if (!own.empty())
      refuse(published + " is the spelling of the published comparisons, which have other defaults, and " +
             own +
             " is the spelling of this program; use one spelling for both, or choose the defaults with "
             "--defaults " +
             joined(choices, "|"));
    suite = sweeps_offloads(line) ? "offload-sweep" : "stage-sweep";
  }
  if (suite.empty() || suite == "own") return {};
  std::vector<FileSetting> settings = settings_of(line, suite);
  settings.push_back({"--defaults", {suite}, "spelled " + published});
  return settings;
}

}  // namespace

void add_defaults_flag(CommandLine& line, std::string& chosen) {
  line.group("Published comparisons");
  line.choice("--defaults", choices, chosen,
              "the defaults of flags that are not given; without this flag, the published ones if a flag has "
              "its published spelling");
  line.otherwise([&line] { return choose(line); });
}

std::string defaults_note(CommandLine const& line) {
  if (line.spelled() != Names{"--model"}) return {};
  return "note: --model alone has the defaults of this program; the published programs train stages 0 to 3 "
         "(--defaults stage-sweep) or three offloads (--defaults offload-sweep) on one rank\n";
}

}  // namespace cli
}  // namespace programs
