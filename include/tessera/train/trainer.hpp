// SPDX-License-Identifier: Apache-2.0
// Defines Trainer, which trains a model under policies that its type names. The class Engine implements it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "tessera/comm/communicator.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/policy/pack.hpp"
#include "tessera/policy/rules.hpp"
#include "tessera/train/options.hpp"
#include "tessera/train/trainer_interface.hpp"

#if defined(TESSERA_LINKED_ENGINES)
#include "tessera/train/compiled_model.hpp"
#else
#include "tessera/train/engine.hpp"
#endif

namespace tessera {
inline namespace v0 {

namespace detail {

/// Returns the functions of the model M for the device Place and the number format T. If the program links
/// tessera::recipes and this library contains the compiled functions of M, returns these functions.
template <class M, class Place, class T>
UnitFunctions<Place, T> functions_of() {
#if defined(TESSERA_LINKED_ENGINES)
  if constexpr (in_library<M>)
    return library_functions<M, Place, T>();
  else
#endif
    return unit_functions<M, Place, T>();
}

/// Returns the model without its C++ type, for the engine of one device and number format. `adapting` has the
/// functions that compute adapters, or is null if the recipe has no adapters.
template <class Place, class T, Model M>
ErasedModel<Place, T> erase(std::shared_ptr<M const> const& object,
                            AdapterFunctions<Place, T> const* adapting = nullptr) {
  UnitFunctions<Place, T> functions = functions_of<M, Place, T>();
  functions.adapting = adapting;
  return {object, functions, [object](MicroBatch shape) { return object->units(shape); },
          static_cast<std::int64_t>(object->vocabulary()), static_cast<std::int64_t>(object->positions())};
}

/// Maps a DType to the C++ type of its values.
template <DType Type>
struct type_of;
template <>
struct type_of<DType::f64> {
  using type = double;
};
template <>
struct type_of<DType::f32> {
  using type = float;
};
template <>
struct type_of<DType::f16> {
  using type = half;
};
template <>
struct type_of<DType::bf16> {
  using type = bfloat16;
};

/// Whether this source file includes the code of a device, or tessera::recipes contains it.
template <class Place>
inline constexpr bool has_backend = requires {
  sizeof(Context<Place>);
};
#if defined(TESSERA_LINKED_ENGINES) && defined(TESSERA_RECIPES_CUDA)
template <>
inline constexpr bool has_backend<Cuda> = true;
#endif

}  // namespace detail

/// The functions that compute the adapters of a policy. Null, except for the policy Lora if
/// <tessera/lora.hpp> is included.
template <class Policy, class Place, class T>
inline constexpr std::nullptr_t adapter_functions = nullptr;

/// Trains a model under one recipe (a set of policies). `Recipe` is a type Config<...> with one policy for
/// each slot. The class Engine does the work: one Engine type runs all recipes with one device and one number
/// format.
template <class M, class Recipe>
class BasicTrainer : public rules<Recipe> {
 public:
  using model_type = M;
  using recipe_type = Recipe;
  static constexpr RecipeTable recipe = recipe_table<Recipe>;

  /// Plans the step, allocates memory and sets the initial weights from the seed. If `options.batch` is 0,
  /// the first call of `step` does this instead, for the shape of its batch. All ranks must construct their
  /// trainers together. Throws Error(config or out_of_memory).
  BasicTrainer(M model, comm::Comm comm, TrainerOptions options = {})
      : model_(std::make_shared<M const>(std::move(model))),
        comm_(std::move(comm)),
        options_(std::move(options)) {
    constexpr bool backend_included = detail::has_backend<device_t<recipe_type>>;
    static_assert(backend_included,
                  "tessera: On<Cuda> needs the GPU's backend, and this file does not include it. Include "
                  "<tessera/cuda.cuh> and compile the file with nvcc. See docs/policies/device.md.");
    constexpr bool files_included = !uses_files(recipe.placement) || open_state_file<FilePlace> != nullptr;
    static_assert(files_included,
                  "tessera: Offload<Nvme> keeps state in files, and this file does not include the code that "
                  "reads and writes them. Include <tessera/nvme.hpp>. See docs/policies/offload.md.");
    constexpr bool adapters_included = recipe.adapters == AdapterKind::none || has_adapters;
    static_assert(adapters_included,
                  "tessera: Lora trains adapters, and this file does not include their code. "
                  "Include <tessera/lora.hpp>. See docs/policies/adapters.md.");
    if (options_.batch > 0) start();
  }
  /// Catches a third argument that is not a TrainerOptions, so that the error message is short. Without this
  /// constructor, compilers would list every constructor with the whole type. This constructor is a template,
  /// so that a call without options does not choose it.
  template <class Fields = TrainerOptions>
  // clang-format off
  BasicTrainer(M, comm::Comm, ...) = delete;  // tessera: a field is misspelt or has another type. Write TrainerOptions{...}, and the compiler names the field. See docs/trainer.md.
  // clang-format on
  /// Catches calls without a communicator, or with a communicator that is not the second argument.
  template <int = 0>
  explicit BasicTrainer(...) = delete;  // tessera: it takes a model, a Comm, options. See docs/trainer.md.

  /// Runs one optimizer step over a batch of (accumulation, batch, sequence) tokens. All ranks must call it.
  /// On a GPU, returns before the step is complete.
  Ticket step(Batch const& batch) {
    if (!engine_) {
      options_.batch = batch.batch;
      options_.sequence = batch.sequence;
      options_.accumulation = batch.accumulation;
      start();
    }
    return engine_->step(batch);
  }

  /// Returns the mean loss of a batch and changes no state. All ranks must call it. Waits for the result.
  double evaluate(Batch const& batch) { return started().evaluate(batch); }
  /// Replaces all weights by the fp32 values of `source`, and resets moments, step count and loss scale.
  /// Every rank must call this function, but no rank waits for another rank. Waits for running steps.
  void fill(ParameterSource const& source) { started().fill(source); }
  /// Passes all weights to `sink` on rank 0, sorted by name, one whole parameter at a time. All ranks must
  /// call it. Waits for running steps. Uses host memory for one parameter. Throws the errors of the sink and
  /// of the transport.
  void collect(ParameterSink const& sink) { started().collect(sink); }
  /// Passes all weights to `sink` as `collect` does, but each parameter in consecutive pieces. Uses less than
  /// 1 MiB of host memory.
  void collect_pieces(ParameterSink const& sink) { started().collect_pieces(sink); }
  /// Waits until all running steps have ended.
  void synchronize() { started().synchronize(); }
  /// Calls the observer after every entry (computation or transfer) of every later step.
  void observe(StepObserver observer) { started().observe(std::move(observer)); }

  /// Returns the engine that runs the steps. Functions that accept a trainer of any recipe have a parameter
  /// of this type.
  AnyTrainer& engine() { return started(); }
  /// Converts the trainer to its engine, so that it can be passed to functions such as save_checkpoint and
  /// resume.
  operator AnyTrainer&() { return started(); }
  /// Returns the plan of the step. `plan().arena_bytes` equals the bytes in use.
  StepPlan const& plan() { return started().plan(); }
  M const& model() const { return *model_; }
  TrainerOptions const& options() const { return options_; }

 private:
  /// The recipe's device. It is Cpu if the code of the recipe's device was not included. The constructor's
  /// static_assert reports this error, and with Cpu the compiler reports no further errors.
  using Place = std::conditional_t<detail::has_backend<device_t<recipe_type>>, device_t<recipe_type>, Cpu>;
  using T = typename detail::type_of<recipe.types.activation>::type;

  /// Nvme if the recipe keeps state in files, otherwise void. This type depends on a template parameter. So
  /// the compiler looks up open_state_file<Nvme> only at instantiation, and <tessera/nvme.hpp> may be
  /// included after this file.
  using FilePlace = std::conditional_t<uses_files(recipe_table<recipe_type>.placement), Nvme, void>;

  /// The functions that compute the adapters, or null if the weights themselves are trained. The value
  /// depends on a template parameter, so <tessera/lora.hpp> may be included after this file.
  static constexpr AdapterFunctions<Place, T> const* adapting =
      adapter_functions<policy_t<recipe_type, slot::adapters>, Place, T>;
  // Compares types and not addresses: g++ with sanitizers does not accept a comparison of an object's address
  // as a constant expression.
  static constexpr bool has_adapters =
      !std::is_null_pointer_v<decltype(adapter_functions<policy_t<recipe_type, slot::adapters>, Place, T>)>;

  void start() {
    engine_ = detail::make_engine<Place, T>(detail::erase<Place, T>(model_, adapting), recipe, comm_,
                                            options_, open_state_file<FilePlace>);
  }
  AnyTrainer& started() {
    if (!engine_)
      throw Error(
          ErrorKind::usage,
          "this trainer has no batch shape yet; set options.batch and options.sequence, or step first");
    return *engine_;
  }

  std::shared_ptr<M const> model_;  // shared with the engine
  comm::Comm comm_;
  TrainerOptions options_;
  std::unique_ptr<AnyTrainer> engine_;
};

namespace detail {

/// Replaces a type that is not a valid model. So the compiler reports only the error of the invalid model and
/// no further errors.
struct NoModel {
  template <class... Arguments>
  NoModel(Arguments const&...) {}
  std::vector<UnitSpec> units(MicroBatch) const { return {}; }
  std::int64_t vocabulary() const { return 1; }
  std::int64_t positions() const { return 1; }
  template <class P>
  void forward(int, P&) const {}
  template <class P>
  void recompute(int, P&) const {}
  template <class P>
  void backward_input(int, P&) const {}
  template <class P>
  void backward_weight(int, P&) const {}
};

}  // namespace detail

/// A trainer of model M under these policies, in any order: Trainer<Gpt2, On<Cuda>, ZeroStage<2>>. A slot
/// without a policy has its documented default.
template <class M, class... Policies>
using Trainer = BasicTrainer<std::conditional_t<Model<M>, M, detail::NoModel>,
                             typename ResolvedFor<model_fault_t<M>, Policies...>::config>;

}  // namespace v0
}  // namespace tessera
