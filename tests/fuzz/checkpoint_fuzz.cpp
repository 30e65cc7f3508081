// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: one file of a checkpoint is replaced by arbitrary bytes. Resuming must succeed or throw
// Error(data) with one line of text. Bytes that begin with { replace trainer.json. Other bytes replace the
// weights or the state of the optimizer. The checksums are corrected, because hardly any arbitrary bytes have
// the right checksum.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/checkpoint.hpp"
#include "tessera/checkpoint/writer.hpp"
#include "tessera/io/hash.hpp"

#include "fuzz/support.hpp"

namespace ts = tessera;
using Json = nlohmann::ordered_json;

namespace {

std::string bytes_in(std::filesystem::path const& path) {
  auto const bytes = ts::FileBytes::open(path);
  return {reinterpret_cast<char const*>(bytes.data()), bytes.size()};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* input, std::size_t size) {
  static fuzz::Folder const folder;
  static ts::Trainer<ts::Gpt2> trainer(
      ts::Gpt2({.layers = 1, .heads = 1, .channels = 4, .positions = 4, .vocabulary = 8}), ts::comm::Comm(),
      {.batch = 1, .sequence = 4, .threads = 1});
  static std::map<std::string, std::string> const sound = [] {
    ts::save_checkpoint(trainer, folder.path() / "saved");
    std::map<std::string, std::string> files;
    for (auto const& entry : std::filesystem::recursive_directory_iterator(folder.path() / "saved"))
      if (entry.is_regular_file())
        files[entry.path().lexically_relative(folder.path()).string()] = bytes_in(entry.path());
    return files;
  }();

  std::string_view const bytes = fuzz::text_of(input, size);
  bool const is_trainer = bytes.starts_with('{');
  Json trainer_json = Json::parse(is_trainer ? bytes : sound.at("saved/trainer.json"), nullptr, false);
  for (auto const& [name, content] : sound) {
    if (name.ends_with("trainer.json")) continue;
    bool const is_model = name.find("/model/") != name.npos;
    bool const changed = !is_trainer && (size % 2 == 0) == is_model;
    std::string_view const held = changed ? bytes : std::string_view(content);
    folder.write(name, held);
    Json::json_pointer const about = Json::json_pointer("/files") / name.substr(sizeof "saved");
    if (trainer_json.is_object() && trainer_json.contains(about) && trainer_json[about].is_object())
      trainer_json[about] = {{"bytes", held.size()}, {"xxh3", ts::hash_of(held)}};
  }
  if (trainer_json.is_object()) trainer_json.erase("checksum");
  folder.write("saved/trainer.json", trainer_json.is_object()
                                         ? ts::detail::with_checksum(std::move(trainer_json))
                                         : std::string(bytes));
  try {
    ts::resume(trainer, folder.path() / "saved");
  } catch (ts::Error const& error) {
    fuzz::check(error);
  }
  return 0;
}
