// SPDX-License-Identifier: Apache-2.0
// Provides batches of small sums over rows, which a GPU computes in one kernel launch. These sums give the
// gradients of biases and of norm weights.
#pragma once

#include "tessera/backend/operations.hpp"
#include "tessera/config.hpp"
#include "tessera/core/operation.hpp"

namespace tessera {
inline namespace v0 {
namespace ops {

/// begin_row_sums and end_row_sums begin and end a batch of row sums with results of type T (see
/// RowSumBatch). Batches may nest; the sums are computed when the outermost batch ends. Models call these
/// functions, which are compiled with the other operations. They do not call backend::RowSums, because source
/// files of models do not include GPU code.
template <class T, class P>
void begin_row_sums(Context<P>& context) {
  backend::RowSums<P>::begin(context);
}
template <class T, class P>
void end_row_sums(Context<P>& context) {
  backend::RowSums<P>::end(context);
}

/// A batch of row sums: it begins with the constructor and ends with the destructor. A GPU collects the row
/// sums for the gradients of biases and norms, and computes them in one launch when the batch ends. Until
/// then, no operation may read these gradients or overwrite the partial sums from which they are computed.
/// The CPU computes each sum immediately.
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
