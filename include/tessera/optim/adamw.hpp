// SPDX-License-Identifier: Apache-2.0
// Provides the operation adamw, one optimizer update, and implements it on the CPU.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tessera/backend/cpu/context.hpp"
#include "tessera/backend/cpu/packet.hpp"
#include "tessera/backend/operations.hpp"
#include "tessera/core/operation.hpp"
#include "tessera/core/place.hpp"
#include "tessera/optim/adamw_formula.hpp"

namespace tessera {
inline namespace v0 {

template <>
struct backend::AdamW<Cpu> {
  /// Runs one AdamW update on arrays of `elements` elements. `first` and `second` are the moments. `weights`
  /// is null if `master` holds the weights themselves.
  template <class G, class S, class T>
  static void update(Context<Cpu>& context, std::int64_t elements, G const* gradient, S* master, S* first,
                     S* second, T* weights, AdamWFactors<S> const* factors, std::int64_t const* skip) {
    AdamWFactors<S> const by = *factors;
    bool const skipped = *skip != 0;
    cpu::for_blocks(context.pool(), elements, [=](std::int64_t begin, std::int64_t end, int) {
      cpu::for_packets<S>(begin, end, [&](std::int64_t i, auto full, std::int64_t count) {
        auto p = cpu::get<S>(static_cast<S const*>(master) + i, full, count);
        if (!skipped) {
          auto const g = cpu::get<S>(gradient + i, full, count);
          auto m = cpu::get<S>(static_cast<S const*>(first) + i, full, count);
          auto v = cpu::get<S>(static_cast<S const*>(second) + i, full, count);
          v0::detail::adamw_formula_of_packet(g, p, m, v, by);
          cpu::put(master + i, p, full, count);
          cpu::put(first + i, m, full, count);
          cpu::put(second + i, v, full, count);
        }
        if (weights) cpu::put(weights + i, p, full, count);
      });
    });
  }

  /// Runs the updates of all rows of a table. A row has the addresses of the arrays of one update. T is the
  /// type of the weights, or void if the optimizer updates the weights themselves.
  template <class G, class S, class T>
  static void update(Context<Cpu>& context, ops::Rows<ops::UpdateRow> const& rows, std::int64_t const* skip) {
    using W = std::conditional_t<std::is_void_v<T>, S, T>;
    for (int number = 0; number < rows.count; ++number) {
      ops::UpdateRow const& row = rows.first[number];
      update(context, row.elements, static_cast<G const*>(row.gradient), static_cast<S*>(row.master),
             static_cast<S*>(row.states[0]), static_cast<S*>(row.states[1]),
             std::is_void_v<T> ? nullptr : static_cast<W*>(row.weights),
             static_cast<AdamWFactors<S> const*>(row.factors), skip);
    }
  }
};

namespace ops {

/// Runs one AdamW update of n elements. Reads the gradient (type G), updates the master weights and the
/// moments `first` and `second` (type S), and stores the new weights in `weights` (type T) if they are
/// separate from the master weights. Moves 28 bytes per element in fp32, and 30 with separate 16-bit weights.
/// If `*skip` is not 0, master weights and moments stay unchanged, and separate weights are written from the
/// master weights. `*factors` and `*skip` are read when the operation runs.
template <class G, class S, class T, class P>
void adamw(Context<P>& context, std::int64_t elements, G const* gradient, S* master, S* first, S* second,
           T* weights, AdamWFactors<S> const* factors, std::int64_t const* skip) {
  double const n = static_cast<double>(elements);
  bool const separate = static_cast<void*>(weights) != static_cast<void*>(master) && weights != nullptr;
  if (!separate) weights = nullptr;
  double const bytes = n * (sizeof(G) + 6.0 * sizeof(S) + (separate ? sizeof(T) : 0.0));
  Operation const operation{"adamw", 14.0 * n, bytes};
  context.enqueue(operation, [&] {
    backend::AdamW<P>::update(context, elements, gradient, master, first, second, weights, factors, skip);
  });
}

/// Runs the AdamW updates of several arrays in one operation. Each row of the table `rows` describes the
/// update of one array. Gradients have type G, master weights and moments S, weights T. If T is void,
/// `master` holds the weights themselves and no row has `weights`; otherwise every row has `weights`. Arrays
/// may be empty. The rows, `*skip` and the factors are read when the operation runs.
template <class G, class S, class T, class P>
void adamw(Context<P>& context, Rows<UpdateRow> const& rows, std::int64_t const* skip) {
  double const n = static_cast<double>(rows.elements);
  double bytes = n * (sizeof(G) + 6.0 * sizeof(S));
  if constexpr (!std::is_void_v<T>) bytes += n * sizeof(T);
  Operation const operation{"adamw", 14.0 * n, bytes};
  context.enqueue(operation, [&] { backend::AdamW<P>::template update<G, S, T>(context, rows, skip); });
}

}  // namespace ops

}  // namespace v0
}  // namespace tessera
