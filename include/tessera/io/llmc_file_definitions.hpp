// SPDX-License-Identifier: Apache-2.0
// Defines the functions of io/llmc_file.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/core/dtype.hpp"
#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/llmc_file.hpp"

namespace tessera {
inline namespace v0 {

/// The last few transposed matrices, each with the index of its first element in the file.
struct LlmcFile::MatrixCache {
  std::mutex mutex;
  std::list<std::pair<std::int64_t, std::shared_ptr<std::vector<float> const>>> matrices;
};

TESSERA_INLINE bool LlmcFile::is_one(std::span<std::byte const> start) {
  if (start.size() < sizeof magic) return false;
  std::int32_t const first = number(start, 0);
  return first >= 20240000 && first < 20250000;
}

TESSERA_INLINE LlmcFile LlmcFile::open(std::filesystem::path const& path) {
  LlmcFile file(path);
  file.read_header();
  file.list_tensors();
  return file;
}

TESSERA_INLINE LlmcFile::Tensor const& LlmcFile::at(std::string_view tensor) const {
  for (Tensor const& each : tensors_)
    if (each.name == tensor) return each;
  fail("has no tensor " + files::printable(tensor));
}

TESSERA_INLINE void LlmcFile::read_as_float(std::string_view tensor, std::int64_t first,
                                            std::span<float> out) const {
  Tensor const& of = at(tensor);
  if (!of.transposed) return read(of.at + first, out);
  std::shared_ptr<std::vector<float> const> const full = transposed(of);
  std::copy_n(full->begin() + first, out.size(), out.begin());
}

TESSERA_INLINE LlmcFile::LlmcFile(std::filesystem::path const& path)
    : name_(files::path_text(path)), reader_(path, true), cache_(std::make_shared<MatrixCache>()) {}

TESSERA_INLINE void LlmcFile::fail(std::string const& text) const {
  throw Error(ErrorKind::data, name_ + ": " + text);
}

TESSERA_INLINE std::int32_t LlmcFile::number(std::span<std::byte const> bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t byte = 0; byte < 4; ++byte)
    value |= std::to_integer<std::uint32_t>(bytes[4 * at + byte]) << (8 * byte);
  return static_cast<std::int32_t>(value);
}

TESSERA_INLINE void LlmcFile::read_header() {
  std::array<std::byte, header_bytes> header{};
  std::size_t const size = reader_.size();
  reader_.read(0, header.data(), std::min(size, header.size()));
  std::int32_t const kind = number(header, 0), format = number(header, 1);
  if (kind == 20240527)
    fail(
        "is the optimizer state of an llm.c run, which only llm.c can resume; start from the weights next to "
        "it, model_*.bin, or resume from a checkpoint of train");
  if (kind == 20240327) fail("is a debug state of llm.c, with no weights; name a file such as gpt2_124M.bin");
  if (kind == 20240328) fail("is a tokenizer of llm.c, with no weights; name a file such as gpt2_124M.bin");
  if (kind == 20240520 || kind == 20240801) fail("are tokens of llm.c, with no weights; give them to --data");
  if (kind != magic)
    fail("begins with the number " + std::to_string(kind) + ", but weights of llm.c begin with " +
         std::to_string(magic));
  if (size < header.size())
    fail("is cut short: " + files::with_commas(static_cast<std::int64_t>(size)) +
         " bytes, and llm.c's header takes 1,024; copy it again");
  if (format != 3 && format != 5)
    fail("has version " + std::to_string(format) +
         " of llm.c's weights, but only 3 (fp32) and 5 (bf16) can be read; write it again with a newer "
         "train_gpt2.py");
  bf16_ = format == 5;
  sizes_ = {number(header, 2), number(header, 3), number(header, 4),
            number(header, 5), number(header, 6), number(header, 7)};
  auto const [positions, vocabulary, layers, heads, channels, rows] = sizes_;
  constexpr std::int64_t max_size = 1 << 20;
  for (std::int64_t const each : {positions, vocabulary, layers, heads, channels, rows})
    if (each < 1 || each > max_size) fail("has an impossible header: " + text_of_sizes());
  if (layers > 1000 || channels > 65536 || channels % heads != 0 || rows < vocabulary)
    fail("has an impossible header: " + text_of_sizes());
}

TESSERA_INLINE std::string LlmcFile::text_of_sizes() const {
  return "layers " + std::to_string(sizes_.layers) + ", heads " + std::to_string(sizes_.heads) +
         ", channels " + std::to_string(sizes_.channels) + ", positions " + std::to_string(sizes_.positions) +
         ", vocabulary " + std::to_string(sizes_.vocabulary) + " in rows " + std::to_string(sizes_.rows);
}

TESSERA_INLINE void LlmcFile::list_tensors() {
  std::int64_t const channels = sizes_.channels;
  std::int64_t end = 0;
  auto const once = [&](char const* name, std::vector<std::int64_t> shape, std::int64_t stored) {
    tensors_.push_back({name, std::move(shape), false, end});
    end += stored;
  };
  auto const of_layers = [&](std::string const& name, std::vector<std::int64_t> const& shape) {
    for (std::int64_t layer = 0; layer < sizes_.layers; ++layer) {
      tensors_.push_back({"h." + std::to_string(layer) + "." + name, shape, shape.size() == 2, end});
      end += tensors_.back().elements();
    }
  };
  once("wte.weight", {sizes_.vocabulary, channels}, sizes_.rows * channels);
  once("wpe.weight", {sizes_.positions, channels}, sizes_.positions * channels);
  of_layers("ln_1.weight", {channels});
  of_layers("ln_1.bias", {channels});
  of_layers("attn.c_attn.weight", {channels, 3 * channels});
  of_layers("attn.c_attn.bias", {3 * channels});
  of_layers("attn.c_proj.weight", {channels, channels});
  of_layers("attn.c_proj.bias", {channels});
  of_layers("ln_2.weight", {channels});
  of_layers("ln_2.bias", {channels});
  of_layers("mlp.c_fc.weight", {channels, 4 * channels});
  of_layers("mlp.c_fc.bias", {4 * channels});
  of_layers("mlp.c_proj.weight", {4 * channels, channels});
  of_layers("mlp.c_proj.bias", {channels});
  once("ln_f.weight", {channels}, channels);
  once("ln_f.bias", {channels}, channels);
  std::int64_t const bytes = header_bytes + end * (bf16_ ? 2 : 4);
  if (static_cast<std::int64_t>(reader_.size()) != bytes)
    fail("holds " + files::with_commas(static_cast<std::int64_t>(reader_.size())) +
         " bytes, and its header (" + text_of_sizes() + ", " + (bf16_ ? "bf16" : "fp32") + ") says " +
         files::with_commas(bytes) + "; copy it again");
}

TESSERA_INLINE void LlmcFile::read(std::int64_t first, std::span<float> out) const {
  if (!bf16_)
    return reader_.read(static_cast<std::size_t>(header_bytes + 4 * first), out.data(), out.size_bytes());
  std::array<bfloat16, 4096> stored;
  for (std::size_t at = 0; at < out.size(); at += stored.size()) {
    auto const some = std::span(stored).first(std::min(stored.size(), out.size() - at));
    reader_.read(static_cast<std::size_t>(header_bytes) + 2 * (static_cast<std::size_t>(first) + at),
                 some.data(), some.size_bytes());
    std::transform(some.begin(), some.end(), out.begin() + static_cast<std::ptrdiff_t>(at),
                   [](bfloat16 value) { return static_cast<float>(value); });
  }
}

TESSERA_INLINE std::shared_ptr<std::vector<float> const> LlmcFile::transposed(Tensor const& of) const {
  {
    std::lock_guard const lock(cache_->mutex);
    for (auto const& [at, matrix] : cache_->matrices)
      if (at == of.at) return matrix;
  }
  auto const in = static_cast<std::size_t>(of.shape[0]), out = static_cast<std::size_t>(of.shape[1]);
  auto matrix = std::make_shared<std::vector<float>>(in * out);
  std::vector<float> row(in);
  for (std::size_t to = 0; to < out; ++to) {
    read(of.at + static_cast<std::int64_t>(to * in), row);
    for (std::size_t from = 0; from < in; ++from) (*matrix)[from * out + to] = row[from];
  }
  std::lock_guard const lock(cache_->mutex);
  cache_->matrices.emplace_front(of.at, matrix);
  if (cache_->matrices.size() > cached_matrices) cache_->matrices.pop_back();
  return matrix;
}

}  // namespace v0
}  // namespace tessera
