// SPDX-License-Identifier: Apache-2.0
// Tests the AdamW update. Its results must have the bits of a scalar formula. They are also compared with
// double-precision results in PyTorch's order of operations.
#include "tessera/optim/adamw.hpp"

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "operators/place.hpp"

using namespace tessera;
using reference::Array;
using reference::poison;
using test::Machine;
using test::OnPlace;

namespace {

/// The buffers that an AdamW update can change: master weights, first and second moments, and rounded
/// weights.
template <class S, class T = S>
struct AdamWState {
  Array<S> master, first, second;
  Array<T> weights;

  bool operator==(AdamWState const&) const = default;
};

/// The buffer that the update gets for the rounded weights: none, a separate buffer, or the buffer of the
/// master weights.
enum class AdamWWeights { none, separate, master };

struct AdamWVariant {
  AdamWWeights weights = AdamWWeights::none;
  std::int64_t offset = 0;  // the index of the first element that is updated
  bool skip = false;
};

template <class G, class S, class T>
AdamWState<S, T> adamw(Machine& machine, AdamWState<S, T> const& before, Array<G> const& gradient,
                       AdamWFactors<S> const& by, AdamWVariant const& variant = {}) {
  OnPlace<G> g(gradient);
  OnPlace<S> master(before.master), first(before.first), second(before.second);
  OnPlace<T> separate(before.weights);
  OnPlace<AdamWFactors<S>> factors(Array<AdamWFactors<S>>({1}, by));
  OnPlace<std::int64_t> skip(Array<std::int64_t>({1}, variant.skip));
  T* weights = variant.weights == AdamWWeights::separate ? separate.view().data() + variant.offset : nullptr;
  if constexpr (std::is_same_v<S, T>)
    if (variant.weights == AdamWWeights::master) weights = master.view().data() + variant.offset;
  ops::adamw(machine.context, gradient.shape.elements() - variant.offset, g.cview().data() + variant.offset,
             master.view().data() + variant.offset, first.view().data() + variant.offset,
             second.view().data() + variant.offset, weights, factors.cview().data(), skip.cview().data());
  machine.finish();
  return {master.back(), first.back(), second.back(), separate.back()};
}

/// Updates `at` by the scalar formula, element by element. The result must have the bits of adamw().
template <class G, class S, class T>
void update_by_formula(AdamWState<S, T>& at, Array<G> const& gradient, AdamWFactors<S> const& by,
                       AdamWVariant const& variant) {
  for (std::int64_t i = variant.offset; i < gradient.shape.elements(); ++i) {
    S const slope = static_cast<S>(gradient.values[static_cast<std::size_t>(i)]);
    if (!variant.skip) detail::adamw_formula(slope, at.master.at(i), at.first.at(i), at.second.at(i), by);
    if (variant.weights == AdamWWeights::separate) at.weights.at(i) = T(at.master.at(i));
  }
}

/// Runs four AdamW updates and compares their results with the scalar formula. The first and the third update
/// have the flag `skip`, so they must not change the master weights and the moments.
template <class G, class S, class T>
void check_adamw(Machine& machine, std::int64_t n, std::int64_t offset, AdamWWeights weights) {
  CAPTURE(n);
  CAPTURE(offset);
  CAPTURE(static_cast<int>(weights));
  AdamWState<S, T> want{reference::random<S>({n}, 1), reference::random<S>({n}, 2, 1e-3), Array<S>({n}),
                        poison<T>({n})};
  for (std::int64_t i = 0; i < n; ++i) {
    want.second.at(i) = static_cast<S>(want.first[i] * want.first[i]);
    if (i % 7 != 0) continue;  // these moments fall below 2^-100 in the last update
    want.first.at(i) = static_cast<S>(i % 2 ? 0.95e-30 : -0.95e-30);
    want.second.at(i) = static_cast<S>(0.85e-30);
  }
  AdamWState<S, T> got = want;
  AdamWOptions const options{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  for (int step = 1; step <= 4; ++step) {
    Array<G> gradient = reference::random<G>({n}, static_cast<std::uint32_t>(10 + step), 0.5);
    for (std::int64_t i = 0; i < n; i += 5) gradient.at(i) = G(0.0f);
    auto const by = adamw_factors<S>(options, 3e-3, std::pow(0.9, step), std::pow(0.95, step), 0.3, step > 2);
    AdamWVariant const variant{weights, offset, step % 2 == 1};
    update_by_formula(want, gradient, by, variant);
    got = adamw(machine, got, gradient, by, variant);
    REQUIRE(got == want);
  }
}

/// One weight and its moments. step() updates the weight and the moments with one gradient.
template <class S>
struct OneWeight {
  S weight, first = 0, second = 0;

  void step(Machine& machine, double gradient, AdamWOptions const& options, double rate, int step,
            bool decayed) {
    Array<S> const one({1});
    AdamWState<S> at{one, one, one, one};
    at.master.at(0) = weight;
    at.first.at(0) = first;
    at.second.at(0) = second;
    at = adamw(machine, at, Array<S>({1}, static_cast<S>(gradient)),
               adamw_factors<S>(options, rate, std::pow(options.beta1, step), std::pow(options.beta2, step),
                                1.0, decayed));
    weight = at.master.at(0);
    first = at.first.at(0);
    second = at.second.at(0);
  }
};

/// An AdamW update in double, in the order of torch.optim.AdamW (_single_tensor_adamw): decay, moments, bias
/// corrections, step.
struct TorchAdamW {
  double rate, beta1, beta2, epsilon, decay;
  double weight, first = 0, second = 0;
  int step = 0;

  void update(double gradient) {
    ++step;
    weight *= 1 - rate * decay;
    first = beta1 * first + (1 - beta1) * gradient;
    second = beta2 * second + (1 - beta2) * gradient * gradient;
    double const correction1 = 1 - std::pow(beta1, step), correction2 = 1 - std::pow(beta2, step);
    double const denominator = std::sqrt(second) / std::sqrt(correction2) + epsilon;
    weight -= rate / correction1 * (first / denominator);
  }
};

}  // namespace

TEST_CASE_TEMPLATE("AdamW has the bits of the scalar formula, and rounds the master also when it skips", T,
                   TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  using S = compute_t<T>;
  Machine machine;
  for (std::int64_t const n :
       {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 100, 1023, 4095, 4096, 4097, 13001, 20000})
    for (std::int64_t const offset : {0, 1})
      for (auto const weights : {AdamWWeights::none, AdamWWeights::separate, AdamWWeights::master}) {
        if (weights == AdamWWeights::master && !std::is_same_v<S, T>) continue;
        check_adamw<T, S, T>(machine, n, offset, weights);
        check_adamw<S, S, T>(machine, n, offset, weights);
      }
}

TEST_CASE("AdamW has the same bits every time") {
  TESSERA_NEEDS_PLACE();
  Array<float> const values = reference::random<float>({20000}, 1), zeros({20000});
  AdamWState<float> const before{values, zeros, zeros, poison<float>({20000})};
  auto const by = adamw_factors<float>({}, 1e-3, 0.9, 0.999, 0.37, true);
  CHECK(test::same_bits_every_time(
      [&](Machine& machine) { return adamw(machine, before, values, by, {AdamWWeights::separate}); }));
}

TEST_CASE("AdamW follows PyTorch over many steps") {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  AdamWOptions const options{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  for (bool const decayed : {true, false}) {
    TorchAdamW torch{3e-3, 0.9, 0.95, 1e-8, decayed ? 0.1 : 0.0, 0.7};
    OneWeight<double> in_double{0.7};
    OneWeight<float> in_float{0.7f};
    for (int step = 1; step <= 200; ++step) {
      double const gradient = std::sin(step * 0.7) + 0.2;
      torch.update(gradient);
      in_double.step(machine, gradient, options, 3e-3, step, decayed);
      in_float.step(machine, gradient, options, 3e-3, step, decayed);
      REQUIRE(in_double.weight == doctest::Approx(torch.weight).epsilon(1e-13));
      REQUIRE(in_float.weight == doctest::Approx(torch.weight).epsilon(1e-5));
    }
  }
}

TEST_CASE("the first AdamW steps have the values that were computed by hand") {
  TESSERA_NEEDS_PLACE();
  // The expected values were computed by hand for torch.optim.AdamW([1.0], lr=0.1, betas=(0.9, 0.999),
  // eps=1e-8, weight_decay=0.5) and the gradients 0.25 and -0.5. m^ and v^ are the bias-corrected moments.
  // Step 1: 1 * 0.95 - 0.1 * 1 = 0.85. Step 2: m = -0.0275, m^ = -0.0275 / 0.19, v = 3.124375e-4, v^ = v /
  // 0.001999, and the weight is 0.85 * 0.95 + 0.1 * 0.1447368... / 0.3953406...
  Machine machine;
  OneWeight<double> at{1.0};
  AdamWOptions const options{.weight_decay = 0.5};
  at.step(machine, 0.25, options, 0.1, 1, true);
  CHECK(at.weight == doctest::Approx(0.85).epsilon(1e-7));
  CHECK(at.first == doctest::Approx(0.025));
  CHECK(at.second == doctest::Approx(6.25e-5));
  at.step(machine, -0.5, options, 0.1, 2, true);
  double const step = 0.1 * (0.0275 / 0.19) / (std::sqrt(3.124375e-4 / 0.001999) + 1e-8);
  CHECK(at.first == doctest::Approx(-0.0275));
  CHECK(at.second == doctest::Approx(3.124375e-4));
  CHECK(at.weight == doctest::Approx(0.85 * 0.95 + step).epsilon(1e-7));
}

TEST_CASE("AdamW applies decay apart from the step and only where asked for") {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  AdamWOptions const options{.weight_decay = 0.25};
  OneWeight<float> with{2.0f}, without{2.0f};
  with.step(machine, 0.0, options, 0.5, 1, true);
  without.step(machine, 0.0, options, 0.5, 1, false);
  CHECK(with.weight == 2.0f * 0.875f);
  CHECK(without.weight == 2.0f);
}

TEST_CASE("AdamW makes tiny moments zero and never denormal") {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  OneWeight<float> at{1.0f};
  at.step(machine, 1e-15, {}, 1e-3, 1, false);
  CHECK(at.second == 0.0f);  // (1e-15)^2 / 1000 is below 2^-100, so 0 is stored
  CHECK(at.first != 0.0f);
  for (int step = 2; step < 400; ++step) {
    at.step(machine, 0.0, {}, 1e-3, step, false);
    REQUIRE((at.first == 0.0f || std::fabs(at.first) >= 0x1p-100f));
  }
  CHECK(at.first == 0.0f);
  CHECK(std::isfinite(at.weight));
  OneWeight<double> in_double{1.0, 0x1p-101, -0x1p-101};
  in_double.step(machine, 0.0, {}, 0.0, 1, false);
  CHECK(in_double.first == 0.0);
  CHECK(in_double.second == 0.0);
}
