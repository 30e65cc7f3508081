// SPDX-License-Identifier: Apache-2.0
// Declares the operations of a device. `Place` is the device as a type (Cpu or Cuda). Each kind of operation
// is one class template, which the backend of the device specialises. The functions in ops/ and optim/ are
// the interface of the operations. They check the shapes and enqueue the work. Their comments define the
// results.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "tessera/core/dtype.hpp"
#include "tessera/core/operation.hpp"
#include "tessera/tensor/tensor.hpp"

namespace tessera {
inline namespace v0 {

/// The position of the first non-finite value in a rank's part of the gradient, in the order of the backward
/// pass: the index of the unit (a part of the model), and the index of the value in the flat buffer of the
/// unit's gradient. Both indices are -1 if all values are finite.
struct BadElement {
  std::int64_t unit = -1;
  std::int64_t element = -1;
};

/// The elementwise activation function after a linear layer.
enum class Activation : std::uint8_t { none, gelu, relu };

/// Whether `activation` is one of the enumerators. Add a new enumerator here and in each switch that the
/// compiler then warns about (-Wswitch).
constexpr bool is_known(Activation activation) {
  switch (activation) {
    case Activation::none:
    case Activation::gelu:
    case Activation::relu:
      return true;
  }
  return false;
}

namespace ops {

/// A view of adjacent columns of a row-major matrix. `stride` is the distance between rows, in values.
template <class T, class Place>
struct Columns {
  T* data = nullptr;
  std::int64_t rows = 0, columns = 0, stride = 0;

  constexpr Columns() = default;
  constexpr Columns(Tensor<T, Place> of, std::int64_t first, std::int64_t count)
      : data(of.data() + first), rows(of.shape().rows()), columns(count), stride(of.shape().columns()) {}
  constexpr Columns(Tensor<T, Place> all) : Columns(all, 0, all.shape().columns()) {}
  template <class U>
  requires std::is_same_v<T, U const>
  constexpr Columns(Columns<U, Place> other)
      : data(other.data), rows(other.rows), columns(other.columns), stride(other.stride) {}

  constexpr Shape shape() const { return {rows, columns}; }
  constexpr std::int64_t bytes() const { return rows * columns * static_cast<std::int64_t>(sizeof(T)); }
};

/// Queries, keys and values of attention, or their gradients. Each of them has one row per token (B*T rows).
/// A row has the columns of all heads, one head after another. Keys and values have the same layout. Keys and
/// values may have fewer heads than the queries.
template <class T, class Place>
struct HeadColumns {
  Columns<T, Place> q, k, v;

  constexpr HeadColumns(Columns<T, Place> queries, Columns<T, Place> keys, Columns<T, Place> values)
      : q(queries), k(keys), v(values) {}
  /// Splits the columns of one tensor (B,T,3C), whose rows have queries, keys and values one after another.
  explicit constexpr HeadColumns(Tensor<T, Place> packed)
      : q(packed, 0, packed.shape().columns() / 3),
        k(packed, q.columns, q.columns),
        v(packed, 2 * q.columns, q.columns) {}
  template <class U>
  requires std::is_same_v<T, U const>
  constexpr HeadColumns(HeadColumns<U, Place> const& other) : q(other.q), k(other.k), v(other.v) {}
};

/// The sizes of an attention. `group` adjacent query heads share one head of keys and values.
struct AttentionSizes {
  std::int64_t samples = 0;
  std::int64_t queries = 0, keys = 0;  ///< per sample
  std::int64_t first = 0;              ///< the position of query 0; query i sees the keys up to first + i
  std::int64_t heads = 0, group = 1;
  std::int64_t head = 0;  ///< channels per head

  constexpr std::int64_t key_heads() const { return heads / group; }
};

/// The frequencies of rotary position embeddings. At position p, channels i and i + pairs of each head are a
/// pair, which is rotated by the angle p * inverse[i]. The struct is plain data, so that a kernel can receive
/// it by value.
struct RotaryFrequencies {
  static constexpr int most = 256;
  int pairs = 0;
  float inverse[most] = {};
};

/// Options of a rotation by rotary position embeddings. `first` is the position in the sequence of the first
/// row of each sample. If `transposed` is true, the rotation is by the negative angle (the backward pass).
struct RotaryOptions {
  std::int64_t first = 0;
  bool transposed = false;
};

/// Options of an embedding lookup. `first_position` is the row of the table of position embeddings that
/// belongs to position 0. Lookups of the token `padding_token` add nothing to the gradient of its embedding.
/// If `padding_token` is negative, every lookup adds to the gradient.
struct EmbeddingOptions {
  std::int64_t first_position = 0;
  std::int64_t padding_token = -1;
};

/// The weights of a matrix product, usually a plain tensor. `format` is the number format of the weights.
/// Quantized weights also have `scales`. `twin` is a transposed copy of quantized weights, for products that
/// support only one orientation.
template <class T, class Place>
struct Operand {
  Tensor<T const, Place> values;
  DType format = dtype_of<T>;
  Tensor<float const, Place> scales{};
  Tensor<T const, Place> twin{};

  template <class V>
  requires std::is_convertible_v<V, Tensor<T const, Place>>
  constexpr Operand(V&& tensor) : values(tensor) {}
};

/// Optional inputs and outputs of a linear layer y = x w. x is (M,K), y is (M,N).
template <class T, class Place>
struct LinearOptions {
  bool transposed = false;            ///< w is (N,K), as PyTorch stores it, instead of (K,N)
  Tensor<T const, Place> bias{};      ///< (N)
  Tensor<T const, Place> residual{};  ///< (M,N), added before an activation; may be the same memory as `pre`
  Activation activation = Activation::none;
  Tensor<T, Place> pre{};  ///< (M,N), needed with an activation: receives the activation's input
  double scale = 1.0;      ///< factor of the product
};

/// Options of the gradient dx of a linear layer y = x w. x and dx are (M,K). If an activation function
/// produced x, dx is the gradient of the input of this function.
template <class T, class Place>
struct LinearInputOptions {
  bool transposed = false;            ///< w is (N,K) instead of (K,N)
  Tensor<T const, Place> residual{};  ///< (M,K), added to the product; may be the same tensor as dx
  Activation activation = Activation::none;
  Tensor<T const, Place> pre{};  ///< (M,K), the input of the activation
  double scale = 1.0;            ///< factor of the product
  /// (linear_partial_rows(M),K): receives the sums of dx over blocks of its rows. The layer that receives dx
  /// as its dy computes its bias gradient from these sums. A backend that computes this bias gradient in
  /// another way, such as the CPU's, leaves `partials` unchanged.
  Tensor<compute_t<T>, Place> partials{};
};

/// Options of the gradient dw of a linear layer y = x w. y and its gradient dy are (M,N). The bias gradient
/// is the sum of the rows of dy.
template <class T, class Place>
struct LinearWeightOptions {
  bool transposed = false;   ///< w is (N,K) instead of (K,N)
  Tensor<T, Place> dbias{};  ///< (N), receives the bias gradient
  /// (blocks,N): the sums of dy over blocks of its rows, if an earlier operation computed these sums;
  /// otherwise empty.
  Tensor<compute_t<T> const, Place> partials{};
};

/// Extra outputs of a norm's backward pass: the sums of the stored residual gradient and of the stored dx
/// over blocks of rows. Each is (layer_norm_partial_rows(M),C). A layer that receives the residual gradient
/// or dx as its dy computes its bias gradient from the sums. A backend that computes bias gradients in
/// another way, such as the CPU's, leaves both outputs unchanged.
template <class S, class Place>
struct NormSums {
  Tensor<S, Place> residual_gradient{}, dx{};
};

/// Tells an operation where to record its first non-finite value. The values of the operation are a range of
/// the gradient of the unit `unit`, and `begin` is the position of the range in this gradient. The operation
/// sets *bad to {unit, begin + index of the value}. It leaves *bad unchanged if *bad already names a later
/// unit, because the backward pass visits later units first, or an earlier value of this unit. If `bad` is
/// null, it records nothing.
struct BadNote {
  BadElement* bad = nullptr;
  std::int64_t unit = 0, begin = 0;
};

/// One row of the table (Rows) of a norm over several arrays (ops::norm_partials). The row describes one
/// array. `partials` receives the sum of squares of each block of the array. `block` is the number of blocks
/// of all previous arrays.
struct NormRow {
  void const* values = nullptr;
  void* partials = nullptr;
  std::int64_t elements = 0, block = 0;
  BadNote note{};
};

/// The maximum number of states that an optimizer keeps per element, not counting the master weights.
inline constexpr int max_optimizer_states = 2;

/// One row of the table (Rows) of an operation with several updates (ops::adamw): the arrays of one update.
/// `weights` is null if the model computes with the master weights themselves. `factors` are the update's
/// AdamWFactors. `block` is the number of blocks of all previous updates.
struct UpdateRow {
  std::int64_t elements = 0, block = 0;
  void const* gradient = nullptr;
  void* master = nullptr;
  void* states[max_optimizer_states] = {};  ///< in the order of the optimizer's list (optim/states.hpp)
  void* weights = nullptr;
  void const* factors = nullptr;
};

/// The number of elements in a block. Operations on several arrays divide each array into blocks; the last
/// block of an array may be shorter.
constexpr std::int64_t row_block = 4096;

/// The table of the arrays that one operation processes, with one row per array. The device reads the table
/// when the operation runs. The field `block` of a row is the number of blocks in the rows before it.
/// `elements` and `blocks` count all rows.
template <class Row>
struct Rows {
  Row const* first = nullptr;
  int count = 0;
  std::int64_t elements = 0, blocks = 0;
};

/// Sets the field `block` of each row, and returns the table with its rows at `address`. The caller then
/// copies `rows` to `address`, from where the device reads them.
template <class Row>
constexpr Rows<Row> number_rows(std::span<Row> rows, Row const* address) {
  Rows<Row> all{address, static_cast<int>(rows.size())};
  for (Row& row : rows) {
    row.block = all.blocks;
    all.elements += row.elements;
    all.blocks += (row.elements + row_block - 1) / row_block;
  }
  return all;
}

/// linear_backward_input sums the rows of its result in blocks of linear_block_rows rows. linear_partial_rows
/// returns the number of blocks in `rows` rows.
constexpr std::int64_t linear_block_rows = 128;
constexpr std::int64_t linear_partial_rows(std::int64_t rows) {
  return rows <= linear_block_rows ? 1 : (rows - 1) / linear_block_rows + 1;
}

/// attention_backward sums the rows of its result (B,T,3C) in blocks of attention_block_rows rows. Each block
/// is a part of one sample. If a sequence is shorter than a block, the blocks have linear_block_rows rows
/// instead and may span samples. attention_partial_rows returns the number of blocks.
constexpr std::int64_t attention_block_rows = 64;
constexpr std::int64_t attention_partial_rows(std::int64_t samples, std::int64_t sequence) {
  return sequence < attention_block_rows ? linear_partial_rows(samples * sequence)
                                         : samples * ((sequence - 1) / attention_block_rows + 1);
}

/// Returns the maximum number of rows of partial sums that the backward pass of a norm over `rows` rows
/// writes. Every backend divides the rows into at most this many blocks (264 is two for each multiprocessor
/// of a Hopper GPU).
constexpr std::int64_t layer_norm_partial_rows(std::int64_t rows) {
  return rows < 1 ? 1 : rows < 264 ? rows : 264;
}

}  // namespace ops

namespace backend {

template <class Place>
inline constexpr bool always_false = false;

/// Begins and ends a batch of sums over rows (ops::RowSumBatch). This default does nothing: on a device
/// without a specialisation, each operation computes its sums itself.
template <class Place>
struct RowSums {
  static void begin(Context<Place>& /*context*/) noexcept {}
  static void end(Context<Place>& /*context*/) noexcept {}
};

/// The base class of the templates below. Such a template is instantiated if a device lacks the operation,
/// and its static_assert fails. NoOperations accepts every call of an operation, so the compiler reports only
/// the static_assert.
struct NoOperations {
  struct Call {
    void operator()(auto&&...) const {}
  };
  static constexpr Call forward{}, backward{}, backward_input{}, backward_weight{}, convert{}, fill{}, copy{},
      accumulate{}, activate{}, axpy{}, sum_partials{}, add_partials{}, first_non_finite{}, sum_losses{},
      rotate{}, begin{}, finish{};
  template <class...>
  static void norm_partials(auto&&...) {}
  template <class...>
  static void update(auto&&...) {}
};

template <class Place>
struct Elementwise : NoOperations {
  static_assert(always_false<Place>,
                "tessera: this device has no elementwise operations (convert, fill, copy, axpy, accumulate, "
                "activate, sums, norms). Specialise backend::Elementwise for it. For GPUs, include "
                "tessera/cuda.cuh. See "
                "docs/how-to/add-an-operation.md.");
};
template <class Place>
struct Linear : NoOperations {
  static_assert(always_false<Place>,
                "tessera: this device has no linear operation. Specialise backend::Linear for it. For GPUs, "
                "include tessera/cuda.cuh. See docs/how-to/add-an-operation.md.");
};
template <class Place>
struct LayerNorm : NoOperations {
  static_assert(always_false<Place>,
                "tessera: this device has no layer normalisation. Specialise backend::LayerNorm for it. For "
                "GPUs, include tessera/cuda.cuh. See docs/how-to/add-an-operation.md.");
};
template <class Place>
struct RmsNorm : NoOperations {
  static_assert(always_false<Place>,
                "tessera: this device has no RMS normalisation. Specialise backend::RmsNorm for it. For "
                "GPUs, include tessera/cuda.cuh. See docs/how-to/add-an-operation.md.");
};
template <class Place>
struct SwiGlu : NoOperations {
  static_assert(always_false<Place>,
                "tessera: this device has no SwiGLU. Specialise backend::SwiGlu for it. For GPUs, include "
                "tessera/cuda.cuh. See docs/how-to/add-an-operation.md.");
};
template <class Place>
struct Rotary : NoOperations {
  static_assert(always_false<Place>,
                "tessera: this device has no rotary positions. Specialise backend::Rotary for it. For GPUs, "
                "include tessera/cuda.cuh. See docs/how-to/add-an-operation.md.");
};
template <class Place>
struct Attention : NoOperations {
  static_assert(always_false<Place>,
                "tessera: this device has no attention. Specialise backend::Attention for it. For GPUs, "
                "include tessera/cuda.cuh. See docs/how-to/add-an-operation.md.");
};
template <class Place>
struct Embedding : NoOperations {
  static_assert(always_false<Place>,
                "tessera: this device has no embedding. Specialise backend::Embedding for it. For GPUs, "
                "include tessera/cuda.cuh. See docs/how-to/add-an-operation.md.");
};
template <class Place>
struct CrossEntropy : NoOperations {
  static_assert(always_false<Place>,
                "tessera: this device has no cross entropy. Specialise backend::CrossEntropy for it. For "
                "GPUs, include tessera/cuda.cuh. See docs/how-to/add-an-operation.md.");
};
template <class Place>
struct AdamW : NoOperations {
  static_assert(always_false<Place>,
                "tessera: this device has no AdamW update. Specialise backend::AdamW for it. For GPUs, "
                "include tessera/cuda.cuh. See docs/how-to/add-an-operation.md.");
};
template <class Place>
struct StepEnds : NoOperations {
  static_assert(
      always_false<Place>,
      "tessera: this device has no operations that begin and end a step. Specialise backend::StepEnds for "
      "it. For GPUs, include tessera/cuda.cuh. See docs/how-to/add-an-operation.md.");
};

}  // namespace backend
}  // namespace v0
}  // namespace tessera
