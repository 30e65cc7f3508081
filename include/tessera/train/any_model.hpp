// SPDX-License-Identifier: Apache-2.0
// Defines AnyModel, a model whose type is chosen at run time. AnyModel holds the model's description, which
// trainers, plans and programs read. It also holds the model's functions for every device and number format
// of tessera::recipes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "tessera/core/dtype.hpp"
#include "tessera/core/place.hpp"
#include "tessera/nn/model.hpp"

namespace tessera {
inline namespace v0 {

namespace detail {

/// A model's functions for every device and number format for which engines are compiled. The pointers for a
/// device are null if the model was not compiled for the device.
using ModelFunctions = std::tuple<UnitFunctions<Cpu, float>, UnitFunctions<Cpu, double>,    //
                                  UnitFunctions<Cpu, half>, UnitFunctions<Cpu, bfloat16>,   //
                                  UnitFunctions<Cuda, float>, UnitFunctions<Cuda, double>,  //
                                  UnitFunctions<Cuda, half>, UnitFunctions<Cuda, bfloat16>>;

}  // namespace detail

/// Wraps a model and hides its type. Made by any_model (compiled_model.hpp) or by ModelFamily::make. Copies
/// are cheap, because they share content that never changes.
class AnyModel {
 public:
  /// Makes an object without a model. Only its conversion to bool may be called.
  AnyModel() = default;
  template <Model M>
  AnyModel(M model, detail::ModelFunctions const& functions) : AnyModel() {
    auto const object = std::make_shared<M const>(std::move(model));
    auto const units = [object](MicroBatch shape) { return object->units(shape); };
    content_ = std::make_shared<Content const>(
        Content{object, units,
                [object, units](std::int64_t sequence) {
                  if constexpr (requires { object->flops_per_token(sequence); })
                    return static_cast<double>(object->flops_per_token(sequence));
                  else
                    return 6.0 * static_cast<double>(parameter_count(units({1, 1})));
                },
                static_cast<std::int64_t>(object->vocabulary()),
                static_cast<std::int64_t>(object->positions()), functions});
  }
  explicit operator bool() const noexcept { return content_ != nullptr; }

  std::function<std::vector<UnitSpec>(MicroBatch)> const& units() const { return content_->units; }
  std::vector<UnitSpec> units(MicroBatch shape) const { return content_->units(shape); }
  std::int64_t vocabulary() const { return content_->vocabulary; }
  std::int64_t positions() const { return content_->positions; }
  std::int64_t parameters() const { return parameter_count(units({1, 1})); }
  /// Returns the training FLOPs per token at this sequence length, to compute the utilisation of a device.
  /// Calls the model's own function flops_per_token if the model has one. Otherwise returns 6 times the
  /// number of parameters.
  double flops_per_token(std::int64_t sequence) const { return content_->flops_per_token(sequence); }

  /// The model object and its functions. Only engines, which run the training steps, use them.
  std::shared_ptr<void const> const& object() const { return content_->object; }
  template <class Place, class T>
  UnitFunctions<Place, T> const& functions() const {
    return std::get<UnitFunctions<Place, T>>(content_->functions);
  }

 private:
  struct Content {
    std::shared_ptr<void const> object;
    std::function<std::vector<UnitSpec>(MicroBatch)> units;
    std::function<double(std::int64_t)> flops_per_token;
    std::int64_t vocabulary, positions;
    detail::ModelFunctions functions;
  };
  std::shared_ptr<Content const> content_;
};

}  // namespace v0
}  // namespace tessera
