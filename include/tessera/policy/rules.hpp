// SPDX-License-Identifier: Apache-2.0
// Lists every rule between policies, such as "Capture<Graph> needs On<Cuda>". A recipe that follows all rules
// is legal.
//
// A rule is a function of a RecipeTable, the plain data of a recipe. So one rule with one error message
// serves two purposes. The class `rules`, a base class of every trainer, applies the rule at compile time.
// The function `broken_rule` applies it at run time to recipes from command lines. If a recipe breaks several
// rules, only the first one is reported.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "tessera/policy/pack.hpp"
#include "tessera/policy/table.hpp"

namespace tessera {
inline namespace v0 {

namespace detail {
namespace rule {

// Defines a rule's error message twice: as a string, and as the text of a static_assert that fails when
// Verdict<Recipe, false> is instantiated.
#define TESSERA_SENTENCE(text)                       \
  static constexpr std::string_view sentence = text; \
  template <class Recipe, bool Legal>                \
  struct Verdict {                                   \
    static_assert(Legal, "tessera: " text);          \
  }

struct graph_needs_cuda {
  static constexpr bool broken(RecipeTable const& recipe) {
    return recipe.capture == CaptureKind::graph && !info_of(recipe.device).graphs;
  }
  TESSERA_SENTENCE(
      "Capture<Graph> records a CUDA graph, so it needs On<Cuda>, and this recipe computes on the CPU. "
      "Add On<Cuda>, or drop Capture<Graph>. See docs/policies/capture.md.");
};

struct tensor_cores_need_cuda {
  static constexpr bool broken(RecipeTable const& recipe) {
    return needs_tensor_cores(recipe.precision) && !info_of(recipe.device).tensor_cores;
  }
  TESSERA_SENTENCE(
      "Precision<tf32>, <bf16x6> and <bf16x3> multiply on tensor cores, so they need On<Cuda>, and this "
      "recipe computes on the CPU. "
      "Add On<Cuda>, or use Precision<float>. See docs/policies/precision.md.");
};

struct cudnn_needs_cuda {
  static constexpr bool broken(RecipeTable const& recipe) {
    return recipe.attention == AttentionKind::cudnn && recipe.device != Device::cuda;
  }
  TESSERA_SENTENCE(
      "Attention<Cudnn> calls cuDNN, so it needs On<Cuda>, and this recipe computes on the CPU. "
      "Add On<Cuda>, or use Attention<Auto>. See docs/policies/attention.md.");
};

struct half_needs_loss_scale {
  static constexpr bool broken(RecipeTable const& recipe) {
    return recipe.precision == DType::f16 && recipe.loss_scale == LossScaleKind::none;
  }
  TESSERA_SENTENCE(
      "Precision<half> without a loss scale loses gradients below 6e-8. "
      "Use LossScale<Dynamic> or LossScale<Static>, or Precision<bfloat16>. See "
      "docs/policies/loss-scale.md.");
};

struct loss_scale_needs_half {
  static constexpr bool broken(RecipeTable const& recipe) {
    return recipe.loss_scale != LossScaleKind::none && recipe.precision != DType::f16;
  }
  TESSERA_SENTENCE(
      "LossScale<Dynamic> and LossScale<Static> need Precision<half>; the other formats have the range of "
      "fp32 or "
      "more, and a scale gains nothing. Drop LossScale, or use Precision<half>. See "
      "docs/policies/loss-scale.md.");
};

struct ordered_refuses_nondeterministic_attention {
  static constexpr bool broken(RecipeTable const& recipe) {
    return recipe.reduction == ReductionKind::ordered && !is_deterministic(recipe.attention);
  }
  TESSERA_SENTENCE(
      "Reduction<Ordered> promises the same bits on every run, and Attention<Cudnn> does not: its backward "
      "may sum "
      "in any order. Use Attention<Fused>, or Reduction<Fast>. See docs/policies/reduction.md.");
};

struct cudnn_needs_16_bit {
  static constexpr bool broken(RecipeTable const& recipe) {
    return recipe.attention == AttentionKind::cudnn && size_of(recipe.precision) != 2;
  }
  TESSERA_SENTENCE(
      "Attention<Cudnn> has kernels for 16-bit values only. "
      "Use Precision<half> or Precision<bfloat16>, or Attention<Auto>. See docs/policies/attention.md.");
};

struct double_on_cuda_needs_reference {
  static constexpr bool broken(RecipeTable const& recipe) {
    return recipe.precision == DType::f64 && recipe.device == Device::cuda &&
           recipe.attention != AttentionKind::reference;
  }
  TESSERA_SENTENCE(
      "Precision<double> on CUDA has no fast attention, since it exists to check gradients. "
      "Add Attention<Reference>, or compute On<Cpu>. See docs/policies/precision.md.");
};

#undef TESSERA_SENTENCE

/// Replaces a rule in `verdict_t` if the recipe breaks no rule. The Verdict of `none` has no static_assert.
struct none {
  template <class Recipe, bool Legal>
  struct Verdict {};
};

}  // namespace rule

/// All rules, in the order in which they are reported.
using Rules = list<rule::graph_needs_cuda,                            //
                   rule::tensor_cores_need_cuda,                      //
                   rule::cudnn_needs_cuda,                            //
                   rule::half_needs_loss_scale,                       //
                   rule::loss_scale_needs_half,                       //
                   rule::ordered_refuses_nondeterministic_attention,  //
                   rule::cudnn_needs_16_bit,                          //
                   rule::double_on_cuda_needs_reference>;

/// Returns the position of the first rule that the recipe breaks, or the number of rules if it breaks none.
template <class... All>
constexpr std::size_t first_broken(RecipeTable const& recipe, list<All...>) {
  std::size_t position = 0;
  (void)((All::broken(recipe) || (++position, false)) || ...);
  return position;
}

template <class... All>
constexpr std::optional<std::string_view> sentence_of_first_broken(RecipeTable const& recipe,
                                                                   list<All...> all) {
  std::string_view const sentences[] = {All::sentence...};
  std::size_t const position = first_broken(recipe, all);
  if (position == sizeof...(All)) return std::nullopt;
  return sentences[position];
}

template <std::size_t Position, class All>
struct rule_at;
template <std::size_t Position, class... All>
struct rule_at<Position, list<All...>> : type_at<Position, list<All..., rule::none>> {};

/// The class template Verdict of the first rule that a recipe breaks, or the empty Verdict of `none`. If the
/// compiler instantiates the Verdict of a broken rule, the rule's static_assert fails. The static_assert
/// tests a plain bool, so that no compiler prints types before the message.
template <class Recipe, std::size_t Position = first_broken(recipe_table<Recipe>, Rules{})>
using verdict_t = typename rule_at<Position, Rules>::type::template Verdict<Recipe, false>;

}  // namespace detail

/// Returns the error message of the first rule that a recipe breaks, or nullopt for a legal recipe. The
/// compiler prints the same message after "tessera: ".
constexpr std::optional<std::string_view> broken_rule(RecipeTable const& recipe) {
  return detail::sentence_of_first_broken(recipe, detail::Rules{});
}

/// Whether a Config follows all rules. False for Refused<Mistake>.
template <class Recipe>
inline constexpr bool is_legal = !broken_rule(recipe_table<Recipe>);
template <class Mistake>
inline constexpr bool is_legal<Refused<Mistake>> = false;

namespace detail {

template <class Recipe>
struct checked_rules {
  using type = verdict_t<Recipe>;
};
template <class Mistake>
struct checked_rules<Refused<Mistake>> {
  using type = Mistake;
};

}  // namespace detail

/// The empty base class of a trainer. If the recipe breaks a rule or is Refused<Mistake>, exactly one
/// static_assert fails when the compiler instantiates this class. The compiler can still use the trainer's
/// members, so it reports no further errors. `rules` is an alias and not a class, because each class between
/// the trainer and the static_assert would add lines of compiler output.
template <class Recipe>
using rules = typename detail::checked_rules<Recipe>::type;

}  // namespace v0
}  // namespace tessera
