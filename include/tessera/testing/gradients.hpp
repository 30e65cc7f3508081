// SPDX-License-Identifier: Apache-2.0
// Checks a model's gradients. Compares every parameter's gradient with central differences of the loss. Also
// runs a step in which every tensor is filled with NaN before the model writes it. For tests; tessera.hpp
// does not include this header.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tessera/core/philox.hpp"
#include "tessera/data/batch.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/train/planning.hpp"
#include "tessera/train/trainer.hpp"

namespace tessera {
inline namespace v0 {
namespace testing {

/// The worst error of one parameter's gradient. For a small change of the parameter, the check compares two
/// changes of the loss: the change that the gradient predicts and the measured change.
struct GradientDifference {
  std::string parameter;
  std::int64_t element = -1;  ///< the changed element; -1: all elements, each up or down
  double predicted = 0.0;
  double measured = 0.0;
  double error = -1.0;  ///< |predicted - measured| / (|predicted| + 1e-6)

  /// Whether the gradient is right. In double precision, a right gradient has an error of about 1e-9.
  bool right() const { return error < 1e-6; }
};

/// The result of check_gradients.
struct GradientReport {
  std::vector<GradientDifference> differences;  ///< one per trained parameter, in the model's order
  std::vector<std::string> faults;              ///< values not written, or computed from unwritten memory
  double norm = 0.0;                            ///< norm of all gradients that the model's functions wrote
  StepReport step;  ///< the trainer's report of the step, with the loss and the norm

  bool right() const {
    return faults.empty() && std::all_of(differences.begin(), differences.end(),
                                         [](GradientDifference const& one) { return one.right(); });
  }
};

inline std::ostream& operator<<(std::ostream& out, GradientReport const& report) {
  for (std::string const& fault : report.faults) out << "fault: " << fault << '\n';
  for (GradientDifference const& one : report.differences) {
    char text[160];
    std::snprintf(text, sizeof text, ": error %.1e, expected %.9g, measured %.9g, ", one.error, one.predicted,
                  one.measured);
    out << (one.right() ? "right: " : "WRONG: ") << one.parameter << text
        << (one.element < 0 ? std::string("all elements") : "element " + std::to_string(one.element)) << '\n';
  }
  return out;
}

}  // namespace testing

namespace detail {

/// The state of a Probed model (see below): its mode, the gradients that it saw and the errors that it found.
struct GradientProbe {
  /// The poison with which a tensor is filled before the model writes it: NaN, or a number that no
  /// computation gives. NaN spreads to values that are computed from it, the number does not. A tied
  /// parameter belongs to one unit, its owner, and is used by other units, the borrowers. In the mode
  /// `lost_partials`, the gradients that borrowers computed for a tied parameter become NaN, and there is no
  /// other poison.
  enum class Mode { none, not_a_number, number, lost_partials } mode = Mode::none;
  /// A tensor that still has poison after the function that must write the tensor. `where` is this function,
  /// `what` is the tensor, and `reads` names the tensors with NaN that the function could have read. `first`
  /// is the first element with poison, and `count` is the number of elements with poison. In the mode
  /// `lost_partials`, poison is right, so `first` and `count` are about elements without poison.
  struct Finding {
    std::string where, what, reads;
    std::int64_t first = 0, count = 0, elements = 0;
    bool written = false;  ///< the poison was overwritten, but by values computed from poison

    bool same_place(Finding const& other) const { return where == other.where && what == other.what; }
  };
  std::vector<UnitSpec> units;
  /// By unit, parameter and element: sums over micro-batches.
  std::vector<std::vector<std::vector<double>>> gradients;
  std::vector<bool> gradients_poisoned;  ///< by unit: filled with poison in this micro-batch
  std::vector<Finding> findings;

  explicit GradientProbe(std::vector<UnitSpec> of) : units(std::move(of)) {}

  UnitSpec const& unit(int index) const { return units[static_cast<std::size_t>(index)]; }
  bool borrowed(int unit, int parameter) const {
    for (UnitSpec const& other : units)
      for (Borrow const& borrow : other.borrows)
        if (borrow.unit == unit && borrow.parameter == parameter) return true;
    return false;
  }
  void start(Mode next) {
    mode = next;
    gradients.assign(units.size(), {});
    gradients_poisoned.assign(units.size(), false);
    findings.clear();
  }
  double poison() const {
    return mode == Mode::number ? 0x1.23456789abcdep+3 : std::numeric_limits<double>::quiet_NaN();
  }
  template <class View>
  void fill_poison(View const& view) const {
    using Value = typename View::value_type;
    if (mode == Mode::not_a_number || mode == Mode::number)
      std::fill_n(view.data(), view.elements(), static_cast<Value>(poison()));
  }
  template <class View>
  bool is_poisoned(View const& view, std::int64_t at) const {
    using Value = typename View::value_type;
    Value const value = view.data()[at];
    return mode == Mode::number ? value == static_cast<Value>(poison())
                                : std::isnan(static_cast<double>(value));
  }
  /// Records a finding. If several micro-batches have the same finding, records it once.
  void note(Finding const& finding) {
    bool const known = std::any_of(findings.begin(), findings.end(),
                                   [&](Finding const& earlier) { return earlier.same_place(finding); });
    if (!known) findings.push_back(finding);
  }
  /// Searches the first `elements` elements of a tensor for poison, and records a finding if there is any.
  /// Checks only the elements for which counts(index) is true; the model need not write the others. Replaces
  /// the poison by 0, so that tensors that are computed from this one do not report the error again.
  template <class View, class Counts>
  void inspect(View const& view, std::int64_t elements, std::string const& where, std::string const& what,
               std::string const& reads, Counts const& counts) {
    if (mode != Mode::not_a_number && mode != Mode::number) return;
    Finding finding{where, what, reads, -1, 0, elements};
    for (std::int64_t at = 0; at < std::min(elements, view.elements()); ++at) {
      if (!is_poisoned(view, at) || !counts(at)) continue;
      if (finding.count++ == 0) finding.first = at;
      view.data()[at] = 0;
    }
    if (finding.count) note(finding);
  }
};

/// A model that wraps the model M. Before it calls a function of M, it fills the tensors that the function
/// must write with poison (NaN or a special number). After the call, it searches these tensors for poison.
/// CPU only, because there an operation is complete when its call returns.
template <class M>
class Probed {
 public:
  Probed(M model, std::shared_ptr<GradientProbe> probe)
      : model_(std::move(model)), probe_(std::move(probe)) {}

  std::vector<UnitSpec> units(MicroBatch shape) const { return model_.units(shape); }
  std::int64_t vocabulary() const { return static_cast<std::int64_t>(model_.vocabulary()); }
  std::int64_t positions() const { return static_cast<std::int64_t>(model_.positions()); }

  template <class Place, class T>
  void forward(int unit, int segment, Pass<Place, T>& pass) const {
    if (!pass.training) return detail::forward(model_, unit, segment, pass);
    UnitSpec const& spec = probe_->unit(unit);
    bool const last = unit + 1 == static_cast<int>(probe_->units.size()) && segment + 1 == spec.segments();
    probe_->fill_poison(pass.output);
    poison_all(spec.saved, segment, pass.saved_values, pass.saved_statistics);
    if (last) probe_->fill_poison(pass.losses);
    detail::forward(model_, unit, segment, pass);
    std::string const where = at(unit, "forward"), reads = poisoned_tensors(unit, pass);
    inspect(pass.output, where, "its output", reads);
    if (last)
      probe_->inspect(pass.losses, pass.losses.elements(), where, "its losses", reads,
                      [&](std::int64_t token) { return pass.targets.data()[token] >= 0; });
  }
  template <class Place, class T>
  void recompute(int unit, int segment, Pass<Place, T>& pass) const {
    detail::recompute(model_, unit, segment, pass);
  }
  template <class Place, class T>
  void backward_input(int unit, int segment, Pass<Place, T>& pass) const {
    probe_->fill_poison(pass.input_gradient);
    poison_all(probe_->unit(unit).backward, segment, pass.backward_values, pass.backward_statistics);
    poison_gradients(unit, pass);
    detail::backward_input(model_, unit, segment, pass);
    inspect(pass.input_gradient, at(unit, "backward_input"), "its input_gradient",
            poisoned_tensors(unit, pass));
  }
  template <class Place, class T>
  void backward_weight(int unit, int segment, Pass<Place, T>& pass) const {
    UnitSpec const& spec = probe_->unit(unit);
    std::string const where = at(unit, "backward_weight"), reads = poisoned_tensors(unit, pass);
    bool const lost_partials = probe_->mode == GradientProbe::Mode::lost_partials;
    if (segment + 1 == spec.segments()) {  // backward runs the last segment first
      for (auto const& view : pass.tied_gradients) probe_->fill_poison(view);
      if (!probe_->gradients_poisoned[static_cast<std::size_t>(unit)]) poison_gradients(unit, pass);
      if (lost_partials)
        for (auto const& left : pass.tied_sums)
          std::fill_n(left.data(), left.elements(), std::numeric_limits<compute_t<T>>::quiet_NaN());
    }
    detail::backward_weight(model_, unit, segment, pass);
    if (segment > 0) return;
    probe_->gradients_poisoned[static_cast<std::size_t>(unit)] = false;
    for (std::size_t index = 0; index < pass.tied_gradients.size(); ++index) {
      ParameterSpec const& owned = probe_->unit(spec.borrows[index].unit)
                                       .parameters[static_cast<std::size_t>(spec.borrows[index].parameter)];
      probe_->inspect(
          pass.tied_gradients[index], owned.shape.elements(), where,
          "tied gradient " + std::to_string(index) + ", the gradient of " + owned.name + " for its owner",
          reads, [](std::int64_t) { return true; });
    }
    auto& sums = probe_->gradients[static_cast<std::size_t>(unit)];
    sums.resize(spec.parameters.size());
    for (int index = 0; index < static_cast<int>(spec.parameters.size()); ++index) {
      if (!trained(unit, index)) continue;
      ParameterSpec const& parameter = spec.parameters[static_cast<std::size_t>(index)];
      auto const gradient = pass.gradient(index);
      std::int64_t const elements = parameter.shape.elements();
      if (lost_partials && probe_->borrowed(unit, index))
        demand_partials(gradient, elements, where, parameter.name);
      probe_->inspect(gradient, elements, where, "the gradient of " + parameter.name, reads,
                      [](std::int64_t) { return true; });
      std::vector<double>& sum = sums[static_cast<std::size_t>(index)];
      sum.resize(static_cast<std::size_t>(elements));
      for (std::size_t element = 0; element < sum.size(); ++element)
        sum[element] += static_cast<double>(gradient.data()[element]);
    }
  }

 private:
  std::string at(int unit, char const* verb) const {
    return "unit '" + probe_->unit(unit).name + "', " + verb;
  }
  bool trained(int unit, int parameter) const {
    return probe_->unit(unit).parameters[static_cast<std::size_t>(parameter)].trainable;
  }
  /// Fills the tensors that the segment `segment` must write with poison.
  void poison_all(std::vector<ActivationSpec> const& specs, int segment, auto const& values,
                  auto const& statistics) const {
    for (std::size_t index = 0; index < specs.size(); ++index) {
      if (specs[index].segment != segment) continue;
      probe_->fill_poison(values[index]);
      probe_->fill_poison(statistics[index]);
    }
  }
  /// Fills the gradients of a unit with poison before the first backward function that writes them. Skips
  /// parameters that other units borrow, because a borrowing unit has possibly already written its gradients.
  template <class Place, class T>
  void poison_gradients(int unit, Pass<Place, T> const& pass) const {
    for (int index = 0; index < static_cast<int>(pass.gradients.size()); ++index) {
      if (!pass.gradient(index)) continue;
      probe_->gradients_poisoned[static_cast<std::size_t>(unit)] = true;
      if (trained(unit, index) && !probe_->borrowed(unit, index)) probe_->fill_poison(pass.gradient(index));
    }
  }
  template <class View>
  void inspect(View const& view, std::string const& where, std::string const& what,
               std::string const& reads) const {
    probe_->inspect(view, view.elements(), where, what, reads, [](std::int64_t) { return true; });
  }
  /// Returns the names of the unit's saved and backward tensors that contain NaN. These names can explain a
  /// finding, because values that are computed from NaN are NaN, too.
  template <class Place, class T>
  std::string poisoned_tensors(int unit, Pass<Place, T> const& pass) const {
    std::string names;
    if (probe_->mode != GradientProbe::Mode::not_a_number) return names;
    auto const any = [&](auto const& view) {
      for (std::int64_t at = 0; at < view.elements(); ++at)
        if (probe_->is_poisoned(view, at)) return true;
      return false;
    };
    auto const list = [&](auto const& specs, auto const& values, auto const& statistics, char const* what) {
      for (std::size_t index = 0; index < values.size(); ++index)
        if (!specs[index].upper_bound && (any(values[index]) || any(statistics[index])))
          names += (names.empty() ? "" : ", ") + std::string(what) + " " + specs[index].name;
    };
    list(probe_->unit(unit).saved, pass.saved_values, pass.saved_statistics, "saved");
    list(probe_->unit(unit).backward, pass.backward_values, pass.backward_statistics, "backward");
    return names;
  }
  /// Checks that the owner of a tied parameter adds the gradients that the borrowers computed for the
  /// parameter. In the mode lost_partials these gradients are NaN, so every element of the owner's gradient
  /// must be NaN. Records a finding if an element is not NaN.
  template <class View>
  void demand_partials(View const& gradient, std::int64_t elements, std::string const& where,
                       std::string const& name) const {
    GradientProbe::Finding finding{where, "the gradient of " + name, {}, -1, 0, elements};
    for (std::int64_t at = 0; at < elements; ++at) {
      if (!probe_->is_poisoned(gradient, at) && finding.count++ == 0) finding.first = at;
      gradient.data()[at] = 0;
    }
    if (finding.count) probe_->note(finding);
  }

  M model_;
  std::shared_ptr<GradientProbe> probe_;
};

/// Returns a pseudo-random test weight: within 0.3 of 1 for norm weights, within 0.3 of 0 for all other
/// parameters, including biases.
inline float probe_weight(ParameterSpec const& spec, int unit, int parameter, std::int64_t element) {
  auto const word = philox4x32({{static_cast<std::uint32_t>(element), static_cast<std::uint32_t>(unit),
                                 static_cast<std::uint32_t>(parameter), 3u}},
                               philox_key(11))
                        .word[0];
  float const uniform = static_cast<float>(static_cast<std::int32_t>(word)) * 0x1p-31f;
  return (spec.init.kind == Init::Kind::ones ? 1.0f : 0.0f) + 0.3f * uniform;
}

/// A small change of one element of a parameter, or of all its elements.
struct Perturbation {
  int unit = -1, parameter = -1;
  std::int64_t element = -1;  ///< the changed element; -1: all elements, each up or down
  float step = 0.0f;

  float of(int in_unit, int in_parameter, std::int64_t at) const {
    if (in_unit != unit || in_parameter != parameter || (element >= 0 && at != element)) return 0.0f;
    bool const down = element < 0 && (static_cast<std::uint64_t>(at) * 0x9E3779B97F4A7C15u) >> 63;
    return down ? -step : step;
  }
};

/// Returns a batch of two micro-batches of random tokens. About one target in four is masked.
inline Batch probe_batch(MicroBatch shape, std::int64_t vocabulary) {
  Batch batch;
  batch.accumulation = 2;
  batch.batch = static_cast<int>(shape.batch);
  batch.sequence = static_cast<int>(shape.sequence);
  for (std::int64_t at = 0; at < batch.elements(); ++at) {
    PhiloxCounter const random = philox4x32({{static_cast<std::uint32_t>(at), 5u, 0u, 0u}}, philox_key(7));
    auto const size = static_cast<std::uint32_t>(vocabulary);
    batch.tokens.push_back(static_cast<std::int32_t>(random.word[0] % size));
    batch.targets.push_back(random.word[2] % 4 == 0 ? -1 : static_cast<std::int32_t>(random.word[1] % size));
  }
  return batch;
}

/// Returns the error message for a finding.
inline std::string sentence_of(GradientProbe::Finding const& finding) {
  std::string const some = std::to_string(finding.count) + " of the " + std::to_string(finding.elements) +
                           " elements, the first being " + std::to_string(finding.first) + ", of ";
  std::string const part = (finding.count < finding.elements ? some : std::string()) + finding.what;
  if (!finding.written) return finding.where + ": did not write " + part;
  return finding.where + ": " + part + " was computed from unwritten memory" +
         (finding.reads.empty() ? "; is it added to the old contents, or is fresh false without a borrower?"
                                : ": " + finding.reads);
}

}  // namespace detail

namespace testing {

/// Checks the gradients of a model without training it. Computes the gradients of one step over two
/// micro-batches of this shape, in double precision, at fixed test weights. Compares every trained
/// parameter's gradient with central differences of the loss: for a change of all elements, and for changes
/// of three single elements.
///
/// Then runs the step again. Before a unit runs, every output, gradient, tied gradient, saved and backward
/// tensor of the unit is filled with NaN. A value that is NaN afterwards was not written, or was computed
/// from unwritten memory. Evaluates the loss eight times per parameter, so use the smallest sizes that the
/// model allows.
template <Model M>
GradientReport check_gradients(M const& model, MicroBatch shape) {
  using Mode = detail::GradientProbe::Mode;
  auto const probe = std::make_shared<detail::GradientProbe>(model.units(shape));
  detail::check_segments(probe->units, detail::member_without_segment<M, Pass<Cpu, double>>());
  Batch const batch = detail::probe_batch(shape, static_cast<std::int64_t>(model.vocabulary()));
  TrainerOptions options;  // with rates of 0, a step does not change the weights
  options.learning_rate = options.weight_decay = 0.0;
  options.batch = batch.batch;
  options.sequence = batch.sequence;
  options.accumulation = batch.accumulation;
  options.threads = 1;
  Trainer<detail::Probed<M>, Precision<double>> trainer({model, probe}, comm::Comm(), options);
  auto const set_weights = [&](detail::Perturbation const& by) {
    trainer.fill([&](int unit, int parameter, std::int64_t offset, std::span<float> out) {
      ParameterSpec const& spec = probe->unit(unit).parameters[static_cast<std::size_t>(parameter)];
      for (std::size_t i = 0; i < out.size(); ++i) {
        std::int64_t const at = offset + static_cast<std::int64_t>(i);
        out[i] = detail::probe_weight(spec, unit, parameter, at) + by.of(unit, parameter, at);
      }
    });
  };

  GradientReport report;
  set_weights({});
  probe->start(Mode::none);
  report.step = trainer.step(batch);
  auto gradients = std::move(probe->gradients);
  double const loss = trainer.evaluate(batch);
  double const exact =
      static_cast<double>(report.step.tokens) / static_cast<double>(report.step.valid_tokens);
  for (auto& unit : gradients)
    for (auto& parameter : unit)
      for (double& value : parameter) {
        value *= exact;
        report.norm += value * value;
      }
  report.norm = std::sqrt(report.norm);

  // NaN spreads to all values that are computed from it. If there are findings, another step with a number as
  // poison shows which values were not written at all.
  probe->start(Mode::not_a_number);
  (void)trainer.step(batch).get();
  auto findings = std::move(probe->findings);
  if (!findings.empty()) {
    probe->start(Mode::number);
    (void)trainer.step(batch).get();
    for (auto& finding : findings) {
      finding.written = std::none_of(probe->findings.begin(), probe->findings.end(), [&](auto const& left) {
        return left.same_place(finding) && left.count == finding.count;
      });
      report.faults.push_back(detail::sentence_of(finding));
    }
  }
  probe->start(Mode::lost_partials);
  (void)trainer.step(batch).get();
  for (auto const& finding : probe->findings)
    report.faults.push_back(
        finding.where + ": " + finding.what +
        " does not include the gradients of its borrowers; is pass.tied_sums unread, or is fresh true?");
  if (report.faults.empty() && !(std::fabs(loss - report.step.loss) <= 1e-12 * loss))
    report.faults.push_back("forward gives a loss of " + std::to_string(report.step.loss) +
                            " in training and " + std::to_string(loss) +
                            " in evaluation; pass.training must not change the loss");
  probe->start(Mode::none);

  for (int unit = 0; unit < static_cast<int>(probe->units.size()); ++unit) {
    auto const& parameters = probe->unit(unit).parameters;
    for (int index = 0; index < static_cast<int>(parameters.size()); ++index) {
      ParameterSpec const& spec = parameters[static_cast<std::size_t>(index)];
      if (!spec.trainable) continue;
      std::vector<double> const& gradient =
          gradients[static_cast<std::size_t>(unit)][static_cast<std::size_t>(index)];
      auto const size = static_cast<std::int64_t>(gradient.size());
      GradientDifference worst;
      for (std::int64_t const element : {std::int64_t{-1}, std::int64_t{0}, size / 2, size - 1}) {
        detail::Perturbation const up{unit, index, element, 0x1p-16f}, down{unit, index, element, -0x1p-16f};
        GradientDifference one{spec.name, element};
        for (std::int64_t i = 0; i < size; ++i) {  // the weights are fp32, so their actual change is rounded
          float const at = detail::probe_weight(spec, unit, index, i);
          one.predicted +=
              gradient[static_cast<std::size_t>(i)] * (static_cast<double>(at + up.of(unit, index, i)) -
                                                       static_cast<double>(at + down.of(unit, index, i)));
        }
        set_weights(up);
        one.measured = trainer.evaluate(batch);
        set_weights(down);
        one.measured -= trainer.evaluate(batch);
        one.error = std::fabs(one.predicted - one.measured) / (std::fabs(one.predicted) + 1e-6);
        if (!(one.error <= worst.error)) worst = one;  // an error of NaN counts as the worst
      }
      report.differences.push_back(worst);
    }
  }
  return report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
