// SPDX-License-Identifier: Apache-2.0
// Defines the functions of io/weights_format.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/llmc_file.hpp"
#include "tessera/io/weights_format.hpp"

namespace tessera {
inline namespace v0 {

namespace detail {

/// Returns the first 64 KiB of a file. In a pickle, this part contains the first names of tensors.
inline std::string first_bytes(std::filesystem::path const& path) {
  FileReader const file(path, false);
  std::string start(std::min<std::size_t>(file.size(), std::size_t{1} << 16), '\0');
  file.read(0, start.data(), start.size());
  return start;
}

inline WeightsFormat weights_format(std::string_view start) {
  // A safetensors file begins with the length of its header in eight bytes, at most 100 MB, and then the
  // header. This is checked first, because the bytes of a length can equal the first bytes of another format.
  if (start.size() > 8 && start[8] == '{' && start.substr(4, 4) == std::string_view("\0\0\0\0", 4))
    return WeightsFormat::safetensors;
  auto const* const bytes = reinterpret_cast<std::byte const*>(start.data());
  if (LlmcFile::is_one({bytes, start.size()})) return WeightsFormat::llmc;
  bool const zipped = start.starts_with("PK\x03\x04") && start.find("data.pkl") != start.npos;
  bool const bare = start.size() > 2 && start[0] == '\x80' && start[1] >= 2 && start[1] <= 5 &&
                    start.substr(2, 6) != std::string_view("\0\0\0\0\0\0", 6);
  return zipped || bare ? WeightsFormat::pickle : WeightsFormat::safetensors;
}

/// Returns a shell command that converts a pickle to safetensors. `start` are the first bytes of the pickle;
/// the names in it select the command.
inline std::string conversion_of(std::filesystem::path const& path, std::string_view start) {
  std::string const name = path_text(path),
                    folder = path.has_parent_path() ? path_text(path.parent_path()) : ".";
  if (start.find("tok_embeddings") != start.npos || path.filename().native().starts_with("consolidated."))
    return "python -m transformers.models.llama.convert_llama_weights_to_hf --input_dir " + folder +
           " --output_dir " + folder + "/hf";
  std::string const to = path_text(std::filesystem::path(path).replace_extension(".safetensors"));
  std::string const load = "import torch; from safetensors.torch import save_file; d = torch.load('" + name +
                           "', map_location='cpu', weights_only=True)";
  if (start.find("model_args") !=
      start.npos)  // nanoGPT: transposes the (out,in) matrices, removes torch.compile's prefix
    return "python -c \"" + load +
           "['model']; save_file({k.removeprefix('_orig_mod.'): (v.t() if "
           "k.endswith(('c_attn.weight', 'c_proj.weight', 'c_fc.weight')) else v).clone().contiguous() "
           "for k, v in d.items()}, '" +
           to + "')\"";
  return "python -c \"" + load + "; save_file({k: v.clone().contiguous() for k, v in d.items()}, '" + to +
         "')\"";
}

}  // namespace detail

TESSERA_INLINE WeightsFormat weights_format(std::filesystem::path const& path) {
  std::string const start = detail::first_bytes(path);
  WeightsFormat const format = detail::weights_format(start);
  if (format == WeightsFormat::pickle)
    throw Error(ErrorKind::data,
                files::path_text(path) +
                    ": is a pickle of PyTorch, which may run code when it is read; convert it "
                    "with " +
                    detail::conversion_of(path, start));
  return format;
}

TESSERA_INLINE void refuse_pickles_in(std::filesystem::path const& folder) {
  std::error_code code;
  std::vector<std::filesystem::path> found;
  std::filesystem::directory_iterator entry(folder, code);
  for (; !code && entry != std::filesystem::directory_iterator(); entry.increment(code)) {
    std::string const suffix = entry->path().extension().native();
    if (suffix == ".bin" || suffix == ".pt" || suffix == ".pth" || suffix == ".ckpt")
      found.push_back(entry->path());
  }
  std::sort(found.begin(), found.end());
  for (auto const& path : found)
    if (std::filesystem::is_regular_file(path, code)) (void)weights_format(path);
}

}  // namespace v0
}  // namespace tessera
