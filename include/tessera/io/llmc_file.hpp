// SPDX-License-Identifier: Apache-2.0
// Reads files of weights of llm.c, such as gpt2_124M.bin. A file is a header of 256 int32 values, then the
// tensors of GPT-2 one after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/data/file_bytes.hpp"

namespace tessera {
inline namespace v0 {

/// Reads the tensors of an llm.c file with Hugging Face's names and shapes. To do so, it omits rows beyond
/// the vocabulary, transposes the (out,in) matrices and splits tensors by layer. Opening checks the header
/// and the size. Every error is Error(data) that names the file. Several threads may read. Format:
/// train_gpt2.py of karpathy/llm.c, versions 3 (fp32) and 5 (bf16).
class LlmcFile {
 public:
  static constexpr std::int32_t magic = 20240326;

  struct Sizes {
    std::int64_t positions = 0, vocabulary = 0, layers = 0, heads = 0, channels = 0;
    std::int64_t rows = 0;  ///< rows of the token embedding in the file: the vocabulary and its padding
  };
  struct Tensor {
    std::string name;
    std::vector<std::int64_t> shape;
    bool transposed = false;  ///< the file stores the matrix as (out,in), and `shape` is (in,out)
    std::int64_t at = 0;      ///< index of the tensor's first element, counted from the end of the header

    std::int64_t elements() const { return shape.size() == 2 ? shape[0] * shape[1] : shape[0]; }
  };

  /// Whether a file begins like one of the files of llm.c: weights, optimizer state, tokens, and others.
  static bool is_one(std::span<std::byte const> start);

  static LlmcFile open(std::filesystem::path const& path);

  /// Returns the path, for messages.
  std::string const& name() const noexcept { return name_; }
  Sizes const& sizes() const noexcept { return sizes_; }
  /// Whether the file stores bfloat16. Otherwise it stores fp32.
  bool is_bf16() const noexcept { return bf16_; }
  std::vector<Tensor> const& tensors() const noexcept { return tensors_; }
  Tensor const& at(std::string_view tensor) const;

  /// Reads elements first..first+out.size()-1 of a tensor. For speed, the last 8 transposed matrices stay in
  /// memory.
  void read_as_float(std::string_view tensor, std::int64_t first, std::span<float> out) const;

 private:
  static constexpr std::int64_t header_bytes = 256 * 4;
  static constexpr std::size_t cached_matrices = 8;

  explicit LlmcFile(std::filesystem::path const& path);

  [[noreturn]] void fail(std::string const& text) const;
  static std::int32_t number(std::span<std::byte const> bytes, std::size_t at);

  void read_header();
  std::string text_of_sizes() const;

  /// Lists the tensors in file order. The file stores each tensor for all layers, then the next tensor.
  void list_tensors();

  void read(std::int64_t first, std::span<float> out) const;

  /// Returns a matrix as (in,out), in fp32. Callers read a matrix in several parts, so the last few matrices
  /// stay in memory.
  std::shared_ptr<std::vector<float> const> transposed(Tensor const& of) const;

  struct MatrixCache;  // the last few transposed matrices

  std::string name_;
  files::FileReader reader_;
  Sizes sizes_;
  bool bf16_ = false;
  std::vector<Tensor> tensors_;
  std::shared_ptr<MatrixCache> cache_;
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/io/llmc_file_definitions.hpp"
#endif
