// SPDX-License-Identifier: Apache-2.0
// Tests the operation accumulate, which adds micro-batch gradients. The result must have the exact bits of a
// scalar sum in the order of the micro-batches.
#include "tessera/ops/accumulate.hpp"

#include <cstdint>
#include <type_traits>

#include <doctest/doctest.h>

#include "tessera/ops/norm.hpp"

#include "operators/place.hpp"

using namespace tessera;
using reference::Array;
using reference::poison;
using reference::same_bits;
using test::Machine;
using test::OnPlace;

TEST_CASE_TEMPLATE("accumulate adds gradients in order and computes the norm partials of the sum", T,
                   TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  using S = compute_t<T>;
  Machine machine;
  for (std::int64_t const n : test::lengths) {
    Array<T> const pieces = reference::random<T>({9 * (n + 16)}, 1, 3.0);
    Array<S> const before = reference::random<S>({n}, 2, 3.0);
    for (int const count : {1, 2, 5, 9})
      for (std::int64_t const gap : {0, 3, 16})
        for (bool const first : {false, true}) {
          CAPTURE(n);
          CAPTURE(count);
          CAPTURE(gap);
          CAPTURE(first);
          std::int64_t const stride = n + gap;
          Array<S> want = before;
          for (std::int64_t i = 0; i < n; ++i)
            for (int piece = 0; piece < count; ++piece) {
              S const value = static_cast<S>(pieces.values[static_cast<std::size_t>(piece * stride + i)]);
              want.at(i) = first && piece == 0 ? value : want.at(i) + value;
            }
          OnPlace<T> from(pieces);
          OnPlace<S> to(first ? poison<S>({n}) : before), with_norms(first ? poison<S>({n}) : before);
          Array<float> const no_norms = poison<float>({(n + 4095) / 4096});
          OnPlace<float> norms(no_norms), want_norms(no_norms);
          T const* const data = from.cview().data();
          ops::accumulate(machine.context, to.view(), data, count, stride, first);
          ops::accumulate(machine.context, with_norms.view(), data, count, stride, first, norms.view());
          ops::norm_partials(machine.context, to.view(), want_norms.view());
          machine.finish();
          CHECK(same_bits(to.back().values, want.values));
          CHECK(same_bits(with_norms.back().values, want.values));
          CHECK(same_bits(norms.back().values, want_norms.back().values));
          if constexpr (std::is_same_v<S, T>)
            if (first) {  // the result may overwrite the first gradient of the sum
              ops::accumulate(machine.context, test::part(from.view(), 0, n), data, count, stride, true);
              machine.finish();
              Array<T> in_place = from.back();
              in_place.values.resize(static_cast<std::size_t>(n));
              CHECK(same_bits(in_place.values, want.values));
            }
        }
  }
}
