// SPDX-License-Identifier: Apache-2.0
// One operation as data, and who may listen instead of running it.
#pragma once

namespace tessera::inline v0 {

/// What an operation is about to do: its name, its floating-point operations, and the bytes it reads and
/// writes at least once. `name` outlives the program's operations (a string literal).
struct Operation {
  char const* name = "";
  double flops = 0;
  double bytes = 0;
};

/// Listens to a context. A context with a recorder reports each operation and does not run it; whatever a
/// step must not do (host read, allocation, synchronisation) is reported as a violation.
class Recorder {
 public:
  virtual ~Recorder() = default;
  virtual void operation(Operation const& operation) = 0;
  virtual void violation(char const* what) = 0;
};

/// Where operations are enqueued: the workers, the workspace and the order of one rank on one place. Each
/// backend specialises it.
template <class Place>
class Context;

}  // namespace tessera::inline v0
