// SPDX-License-Identifier: Apache-2.0
#include "cli/outputs.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "tessera/data/tokens.hpp"
#include "tessera/io/model_weights.hpp"

#include "cli/command_line.hpp"
#include "cli/values.hpp"

namespace programs {
using namespace tessera;
namespace cli {

namespace {

/// Flags whose values are output paths. For the flags in `own_outputs`, a path is a file or folder that the
/// program writes as a whole. For the flags in `shared_folders`, it is a folder that may contain files of
/// other programs.
constexpr std::string_view own_outputs[] = {"--log",        "--save",
                                            "--checkpoint", "--trace",
                                            "--json",       "--csv",
                                            "--html",       "--markdown",
                                            "--output",     "--validation-output",
                                            "--measure"},
                           shared_folders[] = {"--save-adapter", "--tensorboard", "--svg"};

bool is_own(NamedPath const& output) {
  return std::ranges::find(own_outputs, output.flag()) != std::end(own_outputs);
}

/// Returns whether two output flags may name the same folder. This is allowed if each flag writes only files
/// that the other flag does not write. The folder of --save-adapter is never shared.
bool may_share(NamedPath const& one, NamedPath const& other) {
  auto const is_shared = [](NamedPath const& output) {
    return !is_own(output) || output.flag() == "--checkpoint";
  };
  return is_shared(one) && is_shared(other) && one.flag() != "--save-adapter" &&
         other.flag() != "--save-adapter";
}

bool is_of_model(std::string const& name) {
  for (std::string_view const ending : {".safetensors", ".bin", ".pt", ".pth", ".index.json"})
    if (name.ends_with(ending)) return true;
  return name == "config.json" || name == "generation_config.json" || name == "adapter_config.json" ||
         is_tokenizer_file(name);
}

}  // namespace

bool is_tokenizer_file(std::string const& name) {
  for (std::string_view const known : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                       "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt"})
    if (name == known) return true;
  return name.ends_with(".model");
}

bool NamedPath::holds(NamedPath const& file) const {
  if (!is_folder()) return false;
  if (std::mismatch(place_.begin(), place_.end(), file.place_.begin(), file.place_.end()).first ==
      place_.end())
    return true;
  if (!file.exists_ || file.status_.st_nlink < 2) return false;
  std::error_code code;
  std::filesystem::recursive_directory_iterator entry(
      place_, std::filesystem::directory_options::skip_permission_denied, code);
  for (; !code && entry != std::filesystem::recursive_directory_iterator(); entry.increment(code))
    if (std::filesystem::equivalent(entry->path(), file.place_, code)) return true;
  return false;
}

bool NamedPath::holds(NamedPath const& file, bool (*owns_name)(std::string const& name)) const {
  if (!is_folder()) return false;
  if (file.place_.parent_path() == place_ && owns_name(file.place_.filename())) return true;
  std::error_code code;
  std::filesystem::directory_iterator entry(place_, code);
  for (; !code && file.exists_ && entry != std::filesystem::directory_iterator(); entry.increment(code)) {
    std::error_code ignored;
    if (owns_name(entry->path().filename()) &&
        std::filesystem::equivalent(entry->path(), file.place_, ignored))
      return true;
  }
  return false;
}

ProgramFiles::ProgramFiles(CommandLine const& line, std::vector<std::filesystem::path> const& models,
                           std::vector<NamedPath> const& others) {
  constexpr std::pair<char const*, Reads> reads[] = {
      {"--data", Reads::whole},    {"--validation", Reads::whole}, {"--input", Reads::whole},
      {"--machine", Reads::whole}, {"--config", Reads::whole},     {"--from", Reads::whole},
      {"--marks", Reads::whole},   {"--adapter", Reads::model},    {"--tokenizer", Reads::tokenizer},
      {"--init", Reads::weights}};
  for (auto const& [flag, how] : reads) {
    Names const* const values = line.values_of(flag);
    for (std::string const& value : values ? *values : Names()) {
      if (value == "-") continue;  // "-" is standard input
      std::error_code code;        // the program `prepare` describes a token file in FILE.bin.json
      if (value.ends_with(".bin") && std::filesystem::exists(value + ".json", code))
        inputs_.push_back({{flag, value + ".json"}, Reads::whole});
      inputs_.push_back({{flag, value}, how});
      if (how != Reads::weights || inputs_.back().path.is_folder()) continue;
      std::vector<std::filesystem::path> const parts = weights_files(value);
      if (parts.size() == 1) continue;
      inputs_.back().reads = Reads::whole;
      for (auto const& part : parts) inputs_.push_back({{flag, part}, Reads::whole});
    }
  }
  if (line.knows("--data") && line.values_of("--data") == nullptr)
    inputs_.push_back({{"--data", default_data_path}, Reads::whole});
  for (std::string const& file : line.files_of_flags()) inputs_.push_back({{"@FILE", file}, Reads::whole});
  for (auto const& model : models)
    if (!model.empty()) inputs_.push_back({{"--model", model}, Reads::model});
  for (NamedPath const& other : others) inputs_.push_back({other, Reads::whole});
  auto const add_outputs = [&](auto const& flags) {
    for (std::string_view const flag : flags)
      if (Names const* const values = line.values_of(std::string(flag)))
        outputs_.emplace_back(std::string(flag), values->back());
  };
  add_outputs(own_outputs);
  add_outputs(shared_folders);
}

bool ProgramFiles::is_read(Input const& input, NamedPath const& output) {
  bool const folder = input.path.is_folder();
  if (!folder && input.reads == Reads::weights && output.flag() == "--save")
    return output.is_folder() && output.holds(input.path);
  if (!folder) return output.same(input.path);
  if (input.reads == Reads::tokenizer) return input.path.holds(output, is_tokenizer_file);
  if (input.reads != Reads::model) return input.path.holds(output);
  // If the model's folder is the current folder, the program may write files there that do not belong to the
  // model.
  bool const here = input.path.holds(NamedPath("", "."));
  return (is_own(output) && (here ? output.same(input.path) : input.path.holds(output))) ||
         input.path.holds(output, is_of_model);
}

void ProgramFiles::check(std::vector<NamedPath> const& more) const {
  std::vector<NamedPath> outputs = outputs_;
  outputs.insert(outputs.end(), more.begin(), more.end());
  for (NamedPath const& output : outputs) {
    for (Input const& input : inputs_) {
      if (!is_read(input, output)) continue;
      if (output.is_folder() && !input.path.is_folder() && output.holds(input.path))
        refuse(output.text() + " is a folder that holds " + input.path.text() +
               ", and would replace files there; give another folder");
      if (input.path.is_folder())
        refuse(output.text() + " leads into the folder that " + input.path.text() +
               " reads; give a name outside that folder");
      refuse(output.text() + " and " + input.path.text() +
             " are the same file; writing one would destroy the other, give another name");
    }
  }
  for (std::size_t a = 0; a < outputs.size(); ++a)
    for (std::size_t b = a + 1; b < outputs.size(); ++b)
      if (outputs[a].flag() != outputs[b].flag() && outputs[a].same(outputs[b]) &&
          !may_share(outputs[a], outputs[b]))
        refuse(outputs[a].text() + " and " + outputs[b].text() + " are the same file; give two names");
}

}  // namespace cli
}  // namespace programs
