// SPDX-License-Identifier: Apache-2.0
// Tests embeddings. All results must have the same bits as scalar code that adds in the order that the
// library documents.
#include "tessera/ops/embedding.hpp"

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "operators/place.hpp"

using namespace tessera;
using reference::Array;
using reference::poison;
using test::Machine;
using test::OnPlace;
using test::Place;

namespace {

struct EmbeddingSize {
  std::int64_t samples, sequence, channels, vocabulary, positions;
  std::uint32_t percent;  // this percentage of the tokens has the same token id
};

template <class T>
struct EmbeddingInput {
  explicit EmbeddingInput(EmbeddingSize const& size)
      : tokens({size.samples, size.sequence}, 0),
        wte(reference::random<T>({size.vocabulary, size.channels}, 2)),
        wpe(reference::random<T>({size.positions, size.channels}, 3)),
        dy(reference::random<T>({size.samples, size.sequence, size.channels}, 5)),
        borrowed(reference::random<compute_t<T>>({size.vocabulary, size.channels}, 6)) {
    std::uint32_t state = 2654435761u;
    auto const draw = [&](std::int64_t below) {
      state = state * 1664525u + 1013904223u;
      return static_cast<std::int32_t>((state >> 8) % static_cast<std::uint32_t>(below));
    };
    for (std::int32_t& token : tokens.values) {
      bool const equal = draw(100) < static_cast<std::int32_t>(size.percent);
      std::int32_t const other = draw(size.vocabulary);
      token = equal ? static_cast<std::int32_t>(size.vocabulary / 2) : other;
    }
    for (std::size_t i = 0; i < dy.values.size(); i += 11) dy.values[i] = T(-0.0f);
  }
  Array<std::int32_t> tokens;
  Array<T> wte, wpe, dy;
  // A part of the gradient of wte that the output head computed, because the head uses wte too.
  Array<compute_t<T>> borrowed;
};

template <class T>
struct EmbeddingOutput {
  Array<T> y, dwte, dwpe;
  Array<compute_t<T>> partial;

  bool operator==(EmbeddingOutput const&) const = default;
};

struct EmbeddingVariant {
  bool positions = true, fresh = true;
  ops::EmbeddingOptions options = {};
  std::int64_t offset = 0;  // wte and dy start this many elements after an aligned address
  // Adds the gradient in dwte itself; this is possible only if T is the type of sums.
  bool in_place = false;
};

template <class T>
EmbeddingOutput<T> embedding(Machine& machine, EmbeddingInput<T> const& in, EmbeddingVariant const& variant) {
  using S = compute_t<T>;
  OnPlace<std::int32_t> tokens(in.tokens);
  OnPlace<T> wte(in.wte, variant.offset), wpe(in.wpe), dy(in.dy, variant.offset), y(poison<T>(in.dy.shape)),
      own_dwte(poison<T>(in.wte.shape)), dwpe(poison<T>(in.wpe.shape));
  OnPlace<S> partial(variant.fresh ? poison<S>(in.wte.shape) : in.borrowed);
  Tensor<T, Place> dwte = own_dwte.view(), none;
  if constexpr (std::is_same_v<T, S>)
    if (variant.in_place) dwte = partial.view();
  ops::embedding_forward(machine.context, tokens.view(), wte.view(), variant.positions ? wpe.view() : none,
                         y.view(), variant.options);
  ops::embedding_backward(machine.context, tokens.view(), dy.view(), partial.view(), variant.fresh, dwte,
                          variant.positions ? dwpe.view() : none, variant.options);
  machine.finish();
  EmbeddingOutput<T> result{y.back(), own_dwte.back(), dwpe.back(), partial.back()};
  if constexpr (std::is_same_v<T, S>)
    if (variant.in_place) result.dwte = result.partial;
  return result;
}

/// Computes the results of embedding() with scalar code. Sums have the type compute_t<T>, are added in the
/// order of the tokens, and are rounded to T once.
template <class T>
EmbeddingOutput<T> embedding_definition(EmbeddingInput<T> const& in, EmbeddingVariant const& variant) {
  using S = compute_t<T>;
  std::int64_t const n = in.dy.shape.columns();
  EmbeddingOutput<T> result{in.dy, in.wte, poison<T>(in.wpe.shape),
                            variant.fresh ? Array<S>(in.wte.shape) : in.borrowed};
  Array<S> positions(in.wpe.shape);
  for (std::int64_t i = 0; i < in.dy.shape.elements(); ++i) {
    std::int64_t const row = i / n, token = in.tokens.values[static_cast<std::size_t>(row)];
    auto const at_token = static_cast<std::size_t>(token * n + i % n),
               at_position = static_cast<std::size_t>(
                   (variant.options.first_position + row % in.tokens.shape.columns()) * n + i % n);
    S const value = static_cast<S>(in.wte.values[at_token]),
            slope = static_cast<S>(in.dy.values[static_cast<std::size_t>(i)]);
    result.y.at(i) = T(variant.positions ? value + static_cast<S>(in.wpe.values[at_position]) : value);
    if (token != variant.options.padding_token) result.partial.values[at_token] += slope;
    if (variant.positions) positions.values[at_position] += slope;
  }
  auto const round = [](S sum) { return T(sum); };
  std::transform(result.partial.values.begin(), result.partial.values.end(), result.dwte.values.begin(),
                 round);
  if (variant.positions)
    std::transform(positions.values.begin(), positions.values.end(), result.dwpe.values.begin(), round);
  return result;
}

template <class T>
void check_embedding(Machine& machine, EmbeddingSize const& size, ops::EmbeddingOptions const& options = {}) {
  CAPTURE(size.channels);
  CAPTURE(size.vocabulary);
  EmbeddingInput<T> const in(size);
  auto const& tokens = in.tokens.values;
  if (options.padding_token >= 0) CHECK(std::count(tokens.begin(), tokens.end(), options.padding_token) > 0);
  for (bool const positions : {true, false})
    for (bool const fresh : {true, false}) {
      CAPTURE(positions);
      CAPTURE(fresh);
      EmbeddingOutput<T> const want = embedding_definition(in, {positions, fresh, options});
      for (std::int64_t const offset : {0, 1})
        for (int in_place = 0; in_place <= int(std::is_same_v<T, compute_t<T>>); ++in_place)
          CHECK(embedding(machine, in, {positions, fresh, options, offset, in_place != 0}) == want);
    }
}

}  // namespace

TEST_CASE_TEMPLATE("embedding and its gradient have the bits of scalar code", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  for (EmbeddingSize const& size :
       {EmbeddingSize{1, 1, 1, 1, 1, 0}, EmbeddingSize{3, 50, 1, 11, 60, 0}, EmbeddingSize{3, 5, 7, 11, 8, 0},
        EmbeddingSize{2, 33, 33, 300, 40, 20}, EmbeddingSize{4, 100, 64, 20, 100, 0},
        EmbeddingSize{3, 50, 100, 11, 60, 0}, EmbeddingSize{7, 129, 128, 2, 129, 0},
        EmbeddingSize{5, 200, 130, 700, 256, 70}})
    check_embedding<T>(machine, size);
}

TEST_CASE_TEMPLATE("positions may begin at a later row, and a padding token has no gradient", T,
                   TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  for (std::int64_t const channels : {1, 33, 64, 768})
    check_embedding<T>(machine, {3, 130, channels, 50, 140, 20}, {.first_position = 2, .padding_token = 1});
}

#ifdef __CUDACC__
TEST_CASE_TEMPLATE("embedding of many tokens has the bits of scalar code", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  check_embedding<T>(machine, {3, 1000, 768, 400, 1024, 5});
  check_embedding<T>(machine, {20, 321, 12, 50257, 321, 1});
  check_embedding<T>(machine, {2, 321, 5, 100000, 321, 100});
}

TEST_CASE_TEMPLATE("embedding of more tokens than are sorted at once has the bits of scalar code", T, float,
                   bfloat16) {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  check_embedding<T>(machine, {3, cuda::sorted_tokens / 2 - 7, 2, 1000, cuda::sorted_tokens / 2, 0});
}

TEST_CASE("the workspace of the embedding gradient is bounded") {
  CHECK(cuda::embedding_workspace_bytes(1) >= 16);
  CHECK(cuda::embedding_workspace_bytes(1 << 16) >= (std::size_t{16} << 16));
  CHECK(cuda::embedding_workspace_bytes(std::int64_t{1} << 40) <= Context<Cuda>::workspace_bytes(1, 1));
}
#endif

TEST_CASE("embedding gradient has the same bits every time") {
  TESSERA_NEEDS_PLACE();
  EmbeddingInput<float> const in({4, 100, 333, 20, 100, 0});
  CHECK(test::same_bits_every_time(
      [&](Machine& machine) { return embedding(machine, in, {.in_place = true}); }));
}

TEST_CASE("embedding refuses a table with too few positions") {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  EmbeddingInput<float> const in({3, 5, 33, 6, 6, 0});
  OnPlace<std::int32_t> tokens(in.tokens);
  OnPlace<float> wte(in.wte), few(in.wpe), y(in.dy);
  ops::EmbeddingOptions const with{.first_position = 2};
  CHECK_THROWS_AS(
      ops::embedding_forward(machine.context, tokens.view(), wte.view(), few.view(), y.view(), with), Error);
  CHECK_THROWS_AS(ops::embedding_backward(machine.context, tokens.view(), y.view(), wte.view(), true,
                                          wte.view(), few.view(), with),
                  Error);
}
