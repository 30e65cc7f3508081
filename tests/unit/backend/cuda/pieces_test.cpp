// SPDX-License-Identifier: Apache-2.0
// Tests the host code of GPU matrix products that split each fp32 value into bf16 pieces. The pieces must add
// up to their value. The products of pieces must be the right ones in the right order. Blocks of pieces must
// fit into their memory.
#include "tessera/backend/cuda/products/pieces.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/backend/cuda/runtime/budget.hpp"
#include "tessera/core/philox.hpp"

#include "operators/reference.hpp"

using namespace tessera;

namespace {

float from_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// Returns the largest error of a matrix product that is computed from bf16 pieces, relative to |A||B|. For
/// each product of two values, `terms` products of two pieces are computed. They are added in fp32, one after
/// the other.
double error_by_pieces(std::int64_t rows, std::int64_t columns, std::int64_t depth, int terms) {
  auto const a = reference::random<float>({rows, depth}, 1),
             b = reference::random<float>({depth, columns}, 2);
  double worst = 0;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) {
      float sum = 0;
      double exact = 0, magnitude = 0;
      for (int term = 0; term < terms; ++term)
        for (std::int64_t k = 0; k < depth; ++k)
          sum += static_cast<float>(cuda::pieces_of(a.values[static_cast<std::size_t>(r * depth + k)])
                                        .value[cuda::piece_of(terms, true, term)]) *
                 static_cast<float>(cuda::pieces_of(b.values[static_cast<std::size_t>(k * columns + c)])
                                        .value[cuda::piece_of(terms, false, term)]);
      for (std::int64_t k = 0; k < depth; ++k) {
        double const product = a[r * depth + k] * b[k * columns + c];
        exact += product;
        magnitude += std::fabs(product);
      }
      worst = std::max(worst, std::fabs(static_cast<double>(sum) - exact) / magnitude);
    }
  return worst;
}

}  // namespace

TEST_CASE("three pieces are the value") {
  std::int64_t wrong = 0, far = 0;
  for (std::uint32_t i = 0; i < 200000; ++i) {
    PhiloxCounter const drawn = philox4x32({{i, 0, 0, 0}}, philox_key(7));
    float const value = from_bits(drawn.word[0]);
    // The smallest of the three pieces of such a small value can underflow.
    if (!std::isfinite(value) || std::fabs(value) < 0x1p-100f) continue;
    cuda::Pieces const pieces = cuda::pieces_of(value);
    double const sum = static_cast<double>(pieces.value[0]) + static_cast<double>(pieces.value[1]) +
                       static_cast<double>(pieces.value[2]);
    wrong += sum != static_cast<double>(value);
    for (int k = 1; k < 3; ++k)
      far += std::fabs(static_cast<float>(pieces.value[k])) >
             std::fabs(static_cast<float>(pieces.value[k - 1])) * 0x1p-7f;
  }
  CHECK(wrong == 0);
  CHECK(far == 0);
}

TEST_CASE("pieces of values at the ends of the range") {
  float const most = std::numeric_limits<float>::max(), endless = std::numeric_limits<float>::infinity();
  for (float const value : {most, -most, 0x1p127f, 0.0f, -0.0f, 1.0f, 0x1p-126f, 0x1p-149f}) {
    cuda::Pieces const pieces = cuda::pieces_of(value);
    double sum = 0;
    for (bfloat16 const piece : pieces.value) {
      CHECK(std::isfinite(static_cast<float>(piece)));
      sum += static_cast<double>(piece);
    }
    CHECK(std::fabs(sum - static_cast<double>(value)) <= 0x1p-133);
    CHECK(std::signbit(static_cast<float>(pieces.value[0])) == std::signbit(value));
  }
  for (float const value : {endless, -endless}) {
    cuda::Pieces const pieces = cuda::pieces_of(value);
    CHECK(static_cast<float>(pieces.value[0]) == value);
    CHECK(static_cast<float>(pieces.value[1]) == 0.0f);
    CHECK(static_cast<float>(pieces.value[2]) == 0.0f);
  }
  CHECK(std::isnan(static_cast<float>(cuda::pieces_of(std::nanf("")).value[0])));
}

TEST_CASE("terms begin with the smallest and each is there once") {
  for (int const terms : {3, 6}) {
    std::set<std::pair<int, int>> met;
    int before = 4;
    for (int term = 0; term < terms; ++term) {
      int const left = cuda::piece_of(terms, true, term), right = cuda::piece_of(terms, false, term);
      CHECK(left + right <= before);
      before = left + right;
      met.insert({left, right});
    }
    std::set<std::pair<int, int>> want;  // all terms that are at least as large as the smallest used term
    for (int left = 0; left < 3; ++left)
      for (int right = 0; left + right <= (terms == 6 ? 2 : 1); ++right) want.insert({left, right});
    CHECK(met == want);
    CHECK(before == 0);
    for (auto const& [left, right] : met) {
      CHECK(left < cuda::pieces_in(terms));
      CHECK(right < cuda::pieces_in(terms));
    }
  }
}

TEST_CASE("six terms are as exact as fp32 and three are between fp32 and tf32") {
  for (std::int64_t const depth : {1, 37, 500}) {
    CAPTURE(depth);
    double const six = error_by_pieces(7, 9, depth, 6), three = error_by_pieces(7, 9, depth, 3);
    CHECK(six < 1e-6);
    CHECK(three < 3 * 0x1p-16);
    CHECK(three > six);
  }
}

TEST_CASE("blocks of a product have room for their pieces, and are few") {
  using Extents = std::vector<std::int64_t>;
  constexpr std::int64_t any = 1 << 20;
  for (auto const& [terms, copies] :
       {std::pair{3, 3}, {6, 6}, {3, cuda::pieces_in(3)}, {6, cuda::pieces_in(6)}})
    for (std::size_t const bytes : {std::size_t{4} << 10, std::size_t{1} << 20, cuda::piece_bytes})
      for (std::int64_t const rows : Extents{1, 63, 4096, 65536})
        for (std::int64_t const columns : Extents{1, 768, 50304})
          for (std::int64_t const depth : Extents{1, 37, 513, 3072, 65536}) {
            CAPTURE(rows);
            CAPTURE(columns);
            CAPTURE(depth);
            std::int64_t const deepest = terms == copies ? cuda::deepest_sum(terms) : any;
            cuda::PieceBlocks const found =
                cuda::piece_blocks(rows, columns, depth, deepest, terms, copies, bytes);
            REQUIRE(found.rows > 0);
            CHECK(cuda::piece_bytes_of(found.rows, found.depth, copies) +
                      cuda::piece_bytes_of(found.columns, found.depth, copies) <=
                  bytes);
            CHECK(found.depth % cuda::piece_unit == 0);
            CHECK(found.depth <= deepest);
            CHECK((found.left_stationary ? found.rows : found.columns) % cuda::piece_unit == 0);
          }
  // Tests how a product is divided into blocks whose pieces fit into the memory for pieces. A product that
  // fits is one block. If it does not fit, a weight gradient is divided along its depth, and logits are
  // divided along their columns.
  cuda::PieceBlocks const whole = cuda::piece_blocks(4096, 2304, 768, any, 6, 6, cuda::piece_bytes);
  CHECK(whole.rows >= 4096);
  CHECK(whole.columns >= 2304);
  CHECK(whole.depth >= 768);
  cuda::PieceBlocks const weight = cuda::piece_blocks(768, 2304, 65536, any, 6, 6, cuda::piece_bytes);
  CHECK(weight.rows >= 768);
  CHECK(weight.columns >= 2304);
  CHECK(weight.depth >= 4096);
  cuda::PieceBlocks const logits = cuda::piece_blocks(4096, 50304, 768, any, 6, 6, cuda::piece_bytes);
  CHECK(logits.rows >= 4096);
  CHECK(logits.columns >= 8192);
  CHECK(logits.depth >= 768);
  // The second last argument is the number of copies of the pieces that must fit into the memory: 3 here,
  // where each of the three pieces is stored once, and 6 in the products above. With 3, the whole product
  // fits.
  cuda::PieceBlocks const once = cuda::piece_blocks(4096, 50264, 768, any, 6, 3, cuda::piece_bytes);
  CHECK(once.rows >= 4096);
  CHECK(once.columns >= 50264);
  CHECK(once.depth >= 768);
  CHECK(cuda::piece_blocks(64, 64, 64, any, 6, 6, 100).rows == 0);
  CHECK(cuda::piece_blocks(64, 64, 64, any, 6, 6, 0).rows == 0);
}

TEST_CASE("every step of every tile of a product has one cluster, in order, and every part a place") {
  constexpr std::size_t capacity = 1 << 20;
  int even = 0, own = 0;
  for (int const clusters : {1, 7, 66})
    for (int const down : {1, 3, 16})
      for (int const across : {1, 4, 16, 25})
        for (int const steps : {1, 40, 384}) {
          CAPTURE(clusters);
          CAPTURE(down);
          CAPTURE(across);
          CAPTURE(steps);
          cuda::PieceWork const work = cuda::share_pieces(down, across, steps, clusters, capacity);
          CHECK(work.clusters <= clusters);
          struct Part {
            int tile, from, to, cluster;
          };
          std::vector<Part> parts;
          std::set<std::pair<int, int>> tiles;
          std::set<int> places;
          std::size_t placed = 0;
          for (int cluster = 0; cluster < work.clusters; ++cluster) {
            int last = 0;
            work.for_parts(cluster, [&](int tile, int from, int to, bool is_last) {
              CHECK(last == 0);
              last += is_last;
              parts.push_back({tile, from, to, cluster});
              tiles.insert({work.down_of(tile), work.across_of(tile)});
              if (from == 0 && to == steps) return;
              int const place = work.place(cluster, tile, from == 0);
              CHECK(place < work.places());
              places.insert(place);
              ++placed;
            });
            CHECK(last == 1);
          }
          CHECK(places.size() == placed);
          CHECK(tiles.size() == static_cast<std::size_t>(down * across));
          std::sort(parts.begin(), parts.end(), [](Part const& a, Part const& b) {
            return std::pair(a.tile, a.from) < std::pair(b.tile, b.from);
          });
          int tile = 0, step = 0, before = 0;
          for (Part const& part : parts) {
            REQUIRE(part.tile == tile);
            REQUIRE(part.from == step);
            REQUIRE(part.to > step);
            // The depth steps of a tile are assigned to clusters (groups of thread blocks) in ascending
            // order.
            if (step > 0) CHECK(part.cluster > before);
            before = part.cluster;
            if (tile >= work.unshared && work.own > 0) {
              ++own;
              CHECK((step == 0 ? part.to == work.own : part.to == steps));
            } else if (tile >= work.unshared) {
              ++even;
              int const first = (tile - work.unshared) * steps;
              CHECK(work.cluster_of(first + part.from) == part.cluster);
              CHECK(work.cluster_of(first + part.to - 1) == part.cluster);
            }
            step = part.to;
            if (step == steps) step = 0, ++tile;
          }
          CHECK(tile == down * across);
        }
  CHECK(even > 0);
  CHECK(own > 0);
  // These products are weight gradients of GPT-2 124M for 4096 tokens, with six terms. For the 768x2304
  // gradient, all 66 clusters of thread blocks have equal shares of the tiles. For the 768x3072 gradient,
  // each of 48 clusters computes three quarters of its own tile (288 of 384 depth steps), and 16 other
  // clusters compute the last quarters of the 48 tiles.
  CHECK(cuda::share_pieces(3, 12, 384, 66, capacity).clusters == 66);
  CHECK(cuda::share_pieces(3, 12, 384, 66, capacity).own == 0);
  CHECK(cuda::share_pieces(3, 16, 384, 66, capacity).clusters == 64);
  CHECK(cuda::share_pieces(3, 16, 384, 66, capacity).own == 288);
  CHECK(cuda::share_pieces(3, 12, 384, 66, 131).unshared == 36);
  CHECK(cuda::share_pieces(3, 16, 384, 66, 95).unshared == 48);
}

TEST_CASE("the workspace of a GPU has room for pieces where there are some") {
  CHECK(cuda::workspace_bytes(1 << 16) == cuda::blas_bytes);
  CHECK(cuda::workspace_bytes(1 << 16, DType::tf32) == cuda::blas_bytes);
  for (DType const product : {DType::bf16x6, DType::bf16x3})
    CHECK(cuda::workspace_bytes(1, product) == cuda::blas_bytes + cuda::piece_bytes);
}
