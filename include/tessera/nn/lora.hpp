// SPDX-License-Identifier: Apache-2.0
// Provides LoRA: adds low-rank adapters to the linear weights of a model's units, and computes layers with
// adapters.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/nn/adapter.hpp"
#include "tessera/nn/layers.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/policy/parse.hpp"

namespace tessera {
inline namespace v0 {

namespace detail {

inline constexpr std::string_view weight_ending = ".weight";

/// Returns the part of a layer's name after the last dot: "c_attn" for "h.0.attn.c_attn".
inline std::string_view last_name(std::string_view layer) { return layer.substr(layer.rfind('.') + 1); }

/// Whether two names of layers match: they are equal, or the longer name ends with a dot followed by the
/// shorter name.
inline bool names_layer(std::string_view target, std::string_view layer) {
  if (target.size() > layer.size()) std::swap(target, layer);
  if (target.empty() || !layer.ends_with(target)) return false;
  return target.size() == layer.size() || layer[layer.size() - target.size() - 1] == '.';
}

/// Returns the names of the model's layers that can have an adapter: the layers whose weight belongs to a
/// Linear.
inline std::vector<std::string> linear_layers(std::vector<UnitSpec> const& units) {
  std::vector<std::string> names;
  for (UnitSpec const& unit : units)
    for (ParameterSpec const& parameter : unit.parameters)
      if (parameter.inputs >= 0 && parameter.name.ends_with(weight_ending))
        names.push_back(parameter.name.substr(0, parameter.name.size() - weight_ending.size()));
  return names;
}

/// Throws Error(config) for a target that is not a linear layer. The message suggests the nearest name.
[[noreturn]] inline void refuse_target(std::string_view target, std::vector<std::string> const& layers) {
  std::vector<std::string_view> known;
  for (std::string const& layer : layers) {
    std::string_view const name =
        target.find('.') == target.npos ? last_name(layer) : std::string_view(layer);
    if (std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
  }
  std::string_view nearest;
  std::size_t best = target.size() + 1024;
  std::string all;
  for (std::string_view const name : known) {
    std::size_t const distance = edit_distance(target, name);
    if (distance < best) nearest = name;
    best = std::min(best, distance);
    if (known.size() <= 16) all += sentence({all.empty() ? ": choose from " : ", ", name});
  }
  throw_error(ErrorKind::config,
              {"lora: target '", target, "' is not a linear layer of this model, the nearest is '", nearest,
               "'", all, known.size() <= 16 ? ", all-linear" : ""});
}

inline std::vector<std::string_view> targets_of(LoraOptions const& lora) {
  std::vector<std::string_view> targets;
  for (std::string_view rest = lora.targets; !rest.empty();) {
    std::string_view const target = rest.substr(0, rest.find(','));
    if (!target.empty()) targets.push_back(target);
    rest.remove_prefix(std::min(rest.size(), target.size() + 1));
  }
  return targets;
}

inline double lora_scale(LoraOptions const& lora, LoraOptions::Layer const& layer) {
  double const rank = layer.rank;
  return layer.alpha / (lora.rank_stabilized ? std::sqrt(rank) : rank);
}

inline void check_lora(LoraOptions const& lora, std::vector<std::string> const& layers) {
  auto const fail = [](std::initializer_list<Word> what) {
    throw_error(ErrorKind::config, {"lora: ", sentence(what)});
  };
  auto const check = [&](std::string const& of, int rank, double alpha) {
    if (rank < 1 || rank > (1 << 20)) fail({"the rank", of, " is ", rank, "; it must be from 1 to 2^20"});
    if (!(alpha > 0.0 && std::isfinite(alpha)))
      fail({"alpha", of,
            " must be above 0; the output of adapters is scaled by alpha / rank, which is often 1 or 2"});
  };
  if (layers.empty()) fail({"this model has no nn::Linear that owns its weight, and adapters need one"});
  if (lora.layers) {
    if (lora.layers->empty()) fail({"layers is empty, so nothing would be trained; name at least one"});
    for (LoraOptions::Layer const& layer : *lora.layers) {
      if (std::find(layers.begin(), layers.end(), layer.name) == layers.end())
        refuse_target(layer.name, layers);
      check(" of " + layer.name, layer.rank, layer.alpha);
    }
    return;
  }
  check("", lora.rank, lora.alpha);
  if (targets_of(lora).empty())
    fail({"targets is empty; give the names of layers, or all-linear for all of them"});
  for (std::string_view const target : targets_of(lora))
    if (target != "all-linear" && std::none_of(layers.begin(), layers.end(), [&](std::string const& layer) {
          return names_layer(target, layer);
        }))
      refuse_target(target, layers);
}

/// Returns the rank and alpha of a layer's adapter. The rank is 0 if the layer has no adapter.
inline LoraOptions::Layer lora_of(LoraOptions const& lora, std::string const& layer) {
  if (lora.layers) {
    for (LoraOptions::Layer const& own : *lora.layers)
      if (own.name == layer) return own;
  } else {
    for (std::string_view const target : targets_of(lora))
      if (target == "all-linear" || names_layer(target, layer)) return {layer, lora.rank, lora.alpha};
  }
  return {};
}

}  // namespace detail

/// Returns `units` with low-rank adapters: every parameter is frozen, and each linear weight that `lora`
/// names gets an adapter. An adapter adds two parameters at the end of the unit's list: `NAME.lora_A.weight`
/// (rank,in), uniform within 1 / sqrt(in), and `NAME.lora_B.weight` (out,rank). The second parameter is zero,
/// so training starts from the unchanged model. If `lora` has no adapters, returns the units unchanged.
/// Throws Error(config) for an invalid rank or target; the message suggests the nearest name.
inline std::vector<UnitSpec> adapted(std::vector<UnitSpec> units, LoraOptions const& lora, MicroBatch shape) {
  if (!lora) return units;
  detail::check_lora(lora, detail::linear_layers(units));
  for (UnitSpec& unit : units) {
    std::size_t const own = unit.parameters.size();
    for (std::size_t index = 0; index < own; ++index) {
      unit.parameters[index].trainable = false;
      ParameterSpec const weight = unit.parameters[index];
      if (weight.inputs < 0 || !weight.name.ends_with(detail::weight_ending)) continue;
      std::string const layer = weight.name.substr(0, weight.name.size() - detail::weight_ending.size());
      LoraOptions::Layer const with = detail::lora_of(lora, layer);
      if (with.rank == 0) continue;
      if (unit.segments() > 1)
        throw_error(ErrorKind::unsupported, {"lora: layer '", layer,
                                             "' is in a unit with several segments, which cannot have "
                                             "adapters; leave it out of the targets"});
      std::int64_t const in = weight.shape[weight.inputs], out = weight.shape[1 - weight.inputs];
      auto const add = [&](char const* name, Shape const& of, Init const& init) {
        unit.parameters.push_back({layer + name, of, init, true});
        return nn::Weight{static_cast<int>(unit.parameters.size()) - 1};
      };
      nn::Adapter adapter;
      adapter.weight = {static_cast<int>(index)};
      adapter.scale = detail::lora_scale(lora, with);
      adapter.a =
          add(".lora_A.weight", {with.rank, in}, Init::uniform(1.0 / std::sqrt(static_cast<double>(in))));
      adapter.b = add(".lora_B.weight", {out, with.rank}, Init::zeros());
      if (weight.inputs == 1 && weight.padded_rows) unit.parameters.back().padded_rows = weight.padded_rows;
      // Like the gradient of the weight, the gradient of `a` needs the saved x. So each saved tensor that is
      // needed for the weight is also needed for `a`.
      for (ActivationSpec& activation : unit.saved)
        for (std::size_t at = 0, count = activation.needed_for.size(); at < count; ++at)
          if (!activation.needed_for[at].borrowed && activation.needed_for[at].index == adapter.weight.index)
            activation.needed_for.push_back(adapter.a);
      ActivationSpec inner{.name = layer + ".lora", .shape = {shape.batch, shape.sequence, with.rank}};
      adapter.d_inner = {static_cast<int>(unit.backward.size())};
      unit.backward.push_back(inner);
      adapter.inner = {static_cast<int>(unit.saved.size())};
      inner.needed_for = {adapter.b};
      unit.saved.push_back(inner);
      unit.adapters.push_back(adapter);
    }
  }
  return units;
}

/// Returns a function that calls `units` and returns the result with adapters (see `adapted`).
inline std::function<std::vector<UnitSpec>(MicroBatch)> adapting(
    std::function<std::vector<UnitSpec>(MicroBatch)> units, LoraOptions const& lora) {
  return [units = std::move(units), lora](MicroBatch shape) { return adapted(units(shape), lora, shape); };
}

namespace detail {

/// Computes a linear layer with its adapter. The small matrix products of the adapter run first. Their result
/// is the residual that the large product of the layer then adds. So the addition needs no further pass over
/// memory.
template <class Place, class T>
struct LoraProducts {
  using In = Tensor<T const, Place>;
  using Out = Tensor<T, Place>;

  static void forward(Pass<Place, T>& pass, nn::Adapter const& adapter, In x, Out y,
                      ops::LinearOptions<T, Place> const& with) {
    Out const inner = pass[adapter.inner];
    ops::linear(pass.context(), x, pass[adapter.a], inner, {.transposed = true, .scale = adapter.scale});
    if (!y) return;
    Out const sum = with.activation == Activation::none ? y : with.pre;
    ops::linear(pass.context(), inner, pass[adapter.b], sum, {.transposed = true, .residual = with.residual});
    ops::LinearOptions<T, Place> and_sum = with;
    and_sum.residual = sum;
    ops::linear(pass.context(), x, pass[adapter.weight], y, and_sum);
  }
  static void backward_input(Pass<Place, T>& pass, nn::Adapter const& adapter, In dy, Out dx,
                             ops::LinearInputOptions<T, Place> const& with) {
    Out const d_inner = pass[adapter.d_inner];
    ops::linear_backward_input(pass.context(), dy, pass[adapter.b], d_inner,
                               {.transposed = true, .scale = adapter.scale});
    if (!dx) return;
    ops::linear_backward_input(pass.context(), d_inner, pass[adapter.a], dx,
                               {.transposed = true, .residual = with.residual});
    ops::LinearInputOptions<T, Place> and_sum = with;
    and_sum.residual = dx;
    ops::linear_backward_input(pass.context(), dy, pass[adapter.weight], dx, and_sum);
  }
  static void backward_weight(Pass<Place, T>& pass, nn::Adapter const& adapter, In x, In dy) {
    ops::linear_backward_weight(pass.context(), x, pass[adapter.d_inner], pass.gradient(adapter.a),
                                {.transposed = true});
    ops::linear_backward_weight(pass.context(), pass[adapter.inner], dy, pass.gradient(adapter.b),
                                {.transposed = true});
  }
};

}  // namespace detail

/// The functions that add and compute adapters on the device `Place` with values of type T.
template <class Place, class T>
inline constexpr AdapterFunctions<Place, T> lora_functions{adapting, detail::LoraProducts<Place, T>::forward,
                                                           detail::LoraProducts<Place, T>::backward_input,
                                                           detail::LoraProducts<Place, T>::backward_weight};

}  // namespace v0
}  // namespace tessera
