// SPDX-License-Identifier: Apache-2.0
// Defines FunctionRef, a reference to any callable object. A function that has a FunctionRef as a parameter
// is compiled once. A function template would be compiled once for each lambda.
#pragma once

#include <utility>

namespace tessera {
inline namespace v0 {
namespace detail {

template <class Signature>
class FunctionRef;

/// A reference to a function object, or to nothing. The function object must outlive the reference. A
/// FunctionRef allocates no memory.
template <class R, class... Arguments>
class FunctionRef<R(Arguments...)> {
 public:
  FunctionRef() = default;
  template <class F>
  FunctionRef(F const& function)
      : object_(&function), call_([](void const* object, Arguments... arguments) -> R {
          return (*static_cast<F const*>(object))(std::forward<Arguments>(arguments)...);
        }) {}

  R operator()(Arguments... arguments) const { return call_(object_, std::forward<Arguments>(arguments)...); }
  explicit operator bool() const { return call_ != nullptr; }

 private:
  void const* object_ = nullptr;
  R (*call_)(void const* object, Arguments... arguments) = nullptr;
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
