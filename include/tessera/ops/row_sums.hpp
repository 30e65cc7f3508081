// SPDX-License-Identifier: Apache-2.0
// Provides batches of the row sums that complete the gradients of biases and norms.
#pragma once

#include "tessera/backend/operations.hpp"
#include "tessera/config.hpp"
#include "tessera/core/operation.hpp"

namespace tessera {
inline namespace v0 {
namespace ops {

/// Open and close a batch of row sums with results of type T (RowSumBatch). Batches may nest; the sums are
/// computed when the outermost one closes. These two are compiled with the engines, like other operations,
/// because a model's source does not see GPU code.
template <class T, class P>
void begin_row_sums(Context<P>& context) {
  backend::RowSums<P>::begin(context);
}
template <class T, class P>
void end_row_sums(Context<P>& context) {
  backend::RowSums<P>::end(context);
}

/// While this exists, a GPU collects the row sums for gradients of biases and norms. It computes them in one
/// launch when the batch ends. Until then no operation may read these gradients or overwrite the partial sums
/// that they come from. The CPU computes each sum at once.
template <class P, class T>
class RowSumBatch {
 public:
  explicit RowSumBatch(Context<P>& context) : context_(context) { begin_row_sums<T>(context_); }
  RowSumBatch(RowSumBatch const&) = delete;
  RowSumBatch& operator=(RowSumBatch const&) = delete;
  ~RowSumBatch() { end_row_sums<T>(context_); }

 private:
  Context<P>& context_;
};

}  // namespace ops
}  // namespace v0
}  // namespace tessera
