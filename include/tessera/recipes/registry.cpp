// SPDX-License-Identifier: Apache-2.0
// Lists the registered recipes and the model families, and finds the engine that runs a recipe. Also converts
// the sizes of a model to and from a config.json.
#include <algorithm>
#include <cctype>
#include <deque>
#include <mutex>

#include "tessera/backend/cuda/runtime/budget.hpp"
#include "tessera/comm/processes.hpp"
#include "tessera/comm/run_in_launch.hpp"
#include "tessera/policy/parse.hpp"
#include "tessera/policy/rules.hpp"
#include "tessera/recipes/devices.hpp"
#include "tessera/train/check_options.hpp"
#include "tessera/train/gpt2_family.hpp"
#include "tessera/train/llama_family.hpp"
#include "tessera/train/opt_family.hpp"
#include "tessera/train/planning.hpp"

namespace tessera {
inline namespace v0 {

std::vector<RecipeTable> const& registered_recipes() {
  static std::vector<RecipeTable> const recipes = [] {
    std::vector<RecipeTable> tables;
    for (std::string_view const sharding : choice_names<slot::sharding>())
      for (std::string_view const precision : choice_names<slot::precision>())
        for (std::string_view const offload : choice_names<slot::offload>()) {
          RecipeTable const table =
              parse_recipe({.sharding = sharding, .precision = precision, .offload = offload});
          if (broken_rule(table) || unsupported_reason(table) || uses_files(table.placement)) continue;
          if (table.precision != DType::f64)
            tables.push_back(table);  // fp64 is only for gradient checks, so this list leaves it out
        }
    return tables;
  }();
  return recipes;
}

namespace detail {
namespace {

/// The model families of the process. After a family is added, it keeps its address and does not change, so
/// pointers to it stay valid. Any thread may call all functions at any time, also before main.
class FamilyRegistry {
 public:
  static FamilyRegistry& of_process() {
    static FamilyRegistry registry;
    return registry;
  }

  std::vector<ModelFamily const*> all() const {
    std::lock_guard const lock(mutex_);
    std::vector<ModelFamily const*> found;
    for (ModelFamily const& family : families_) found.push_back(&family);
    return found;
  }
  /// Calls check(known) for each family in the list, and then adds `family`. `check` throws an error if
  /// `family` must not be added.
  template <class Check>
  void add(ModelFamily family, Check&& check) {
    std::lock_guard const lock(mutex_);
    for (ModelFamily const& known : families_) check(known);
    families_.push_back(std::move(family));
  }

 private:
  FamilyRegistry() = default;

  mutable std::mutex mutex_;
  std::deque<ModelFamily> families_{gpt2_family(), opt_family(), llama_family()};
};

DeviceRecipes const* cpu_recipes() {
  static DeviceRecipes const recipes{
      .make = &make_engine_on<Cpu>,
      .record = &record_on<Cpu>,
      .devices = [] { return 64; },
      .need = [] {},
      .default_ranks = [] { return std::vector<int>{4}; },
      .facts = [] { return DeviceFacts(); },
      .memory_limit = &memory_limit<Cpu>,
      .run = [](int ranks, std::function<void(comm::Comm&)> const& fn,
                RunOptions const& options) { tessera::run(ranks, fn, options); },
      .connect = &comm::processes,
      .measure_products = nullptr};
  return &recipes;
}

DeviceRecipes const* recipes_of(Device device) {
  switch (device) {
    case Device::cpu:
      return cpu_recipes();
    case Device::cuda:
      return cuda_recipes();
  }
  return nullptr;
}
static_assert(info_of(Device::cpu).own_memory == has_own_memory<Cpu> &&
              (info_of(Device::cpu).max_steps_in_flight > 0) == !Context<Cpu>::immediate);

DeviceRecipes const& need_recipes_of(RecipeTable const& recipe) {
  if (auto const reason = unavailable_reason(recipe)) throw Error(ErrorKind::unsupported, *reason);
  return *recipes_of(recipe.device);
}

}  // namespace
}  // namespace detail

namespace {

/// Returns a JSON list of one name, such as ["GPT2LMHeadModel"].
HubValue in_list(std::string const& name) { return {HubValue::Kind::other, "[\"" + name + "\"]"}; }

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

ModelSpec ModelFamily::spec(HubConfig& config) const {
  auto const find = [&](std::string const& number) -> HubFormat::Number const* {
    for (HubFormat::Number const& one : hub.numbers)
      if (one.number == number) return &one;
    return nullptr;
  };
  auto const read = [&](HubFormat::Number const& one, bool real) {
    HubValue const* const value = config.find(one.key);
    HubValue const* const other = one.other.empty() ? nullptr : config.find(one.other);
    if (value && other && !(*value == *other))
      config.fail(one.other, *other, one.key + ", " + value->json + ",");
    std::string const& key = !value && other ? one.other : one.key;
    if (!value && !other && one.absent > 0.0) return one.absent;
    return real ? config.real(key) : config.integer(key);
  };
  ModelSpec sizes;
  for (ModelKey const& key : keys) {
    HubFormat::Number const* const in_file = find(key.name);
    double const value = in_file ? read(*in_file, key.real) : key.standard ? key.standard(sizes) : 0.0;
    if (in_file && value > static_cast<double>(key.max)) {
      std::string const& name = config.find(in_file->key) ? in_file->key : in_file->other;
      config.fail(name, *config.find(name), "a number up to " + std::to_string(key.max));
    }
    sizes.numbers.push_back({key.name, value});
  }
  for (auto const& [number, size] :
       {std::pair("positions", &sizes.positions), std::pair("vocabulary", &sizes.vocabulary)})
    if (HubFormat::Number const* const in_file = find(number))
      *size = static_cast<std::int64_t>(read(*in_file, false));
  // The list `architectures` of the file must contain a name of hub.architectures, or be empty or missing.
  // The comparison ignores case, because old files spell "LLaMAForCausalLM".
  std::string const listed = config.has("architectures") ? lower(config.find("architectures")->json) : "[]";
  if (std::none_of(hub.architectures.begin(), hub.architectures.end(), [&](std::string const& name) {
        return listed.find('"' + lower(name) + '"') != listed.npos;
      }))
    config.support("architectures", {in_list(hub.architectures.front()), {HubValue::Kind::other, "[]"}, {}});
  config.support("quantization_config", {HubValue()});
  for (HubFormat::Feature const& feature : hub.features) config.support(feature.key, feature.supported);
  for (HubFormat::Unapplied const& one : hub.unapplied)
    config.record_unapplied(one.key, one.here, one.absent);
  if (hub.read) hub.read(config, sizes);
  config.refuse_unsupported(title);
  return sizes;
}

HubEntries ModelFamily::hub_entries(ModelSpec const& sizes, bool sizes_alone) const {
  HubEntries entries;
  auto const add = [&](std::string const& key, HubValue const& value) { entries.push_back({key, value}); };
  if (!sizes_alone) {
    add("architectures", in_list(hub.architectures.front()));
    add("model_type", hub.model_type.c_str());
  }
  for (auto const& [key, number, absent, other] : hub.numbers) {
    bool const real = std::any_of(keys.begin(), keys.end(), [&, &name = number](ModelKey const& one) {
      return one.name == name && one.real;
    });
    add(key, number == "positions"    ? sizes.positions
             : number == "vocabulary" ? sizes.vocabulary
             : real                   ? HubValue(sizes.number(number))
                                      : sizes.integer(number));
  }
  // Weights are written in fp32. Older versions of the transformers library read the key torch_dtype, newer
  // versions read dtype.
  add("torch_dtype", "float32");
  add("dtype", "float32");
  if (sizes_alone) return entries;
  for (HubFormat::Feature const& feature : hub.features) add(feature.key, feature.supported.front());
  for (HubFormat::Unapplied const& one : hub.unapplied) add(one.key, one.here);
  if (hub.write) hub.write(sizes, entries);
  return entries;
}

std::vector<ModelFamily const*> model_families() { return detail::FamilyRegistry::of_process().all(); }

bool register_model_family(ModelFamily family) {
  auto const refuse = [&](std::string const& what) {
    throw Error(ErrorKind::usage, "model family '" + family.name + "': " + what);
  };
  auto const check_name = [&](std::string const& name) {
    if (name.empty() || name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789._-") != name.npos)
      refuse("'" + name + "' is not a valid name; use lowercase letters, digits, '.', '_' and '-'");
  };
  check_name(family.name);
  if (!family.make) refuse("make is empty; set it to the function that makes a model from its sizes");
  for (ModelKey const& key : family.keys) {
    check_name(key.name);
    bool const found = std::any_of(family.keys.begin(), family.keys.end(),
                                   [&](ModelKey const& other) { return other.name == key.divides; });
    if (!key.divides.empty() && !found)
      refuse("key '" + key.name + "' must be a divisor of '" + key.divides +
             "', which is not a key of this family; name one of its keys");
  }
  for (NamedModel const& model : family.models) {
    check_name(model.name);
    if (model.numbers.size() != family.keys.size())
      refuse("model '" + model.name + "' has " + std::to_string(model.numbers.size()) + " numbers for " +
             std::to_string(family.keys.size()) + " keys; give one for each, in their order");
  }
  if (!family.hub.model_type.empty() && family.hub.architectures.empty())
    refuse("its hub has a model_type but no architectures; give at least the architecture to write");
  for (HubFormat::Feature const& feature : family.hub.features)
    if (feature.supported.empty())
      refuse("feature '" + feature.key + "' of its hub has no value; give at least the value to write");
  auto const check_against = [&](ModelFamily const& known) {
    if (known.name == family.name) refuse("another family has this name; choose another");
    if (!family.hub.model_type.empty() && known.hub.model_type == family.hub.model_type)
      refuse("its model_type '" + family.hub.model_type + "' belongs to family '" + known.name +
             "'; a config.json must select a single family");
    for (NamedModel const& existing : known.models)
      for (NamedModel const& model : family.models)
        if (existing.name == model.name)
          refuse("the name of model '" + model.name + "' is taken by family '" + known.name +
                 "'; choose another");
  };
  detail::FamilyRegistry::of_process().add(family, check_against);
  return true;
}

std::unique_ptr<AnyTrainer> make_trainer(AnyModel const& model, RecipeTable const& recipe, comm::Comm comm,
                                         TrainerOptions const& options) {
  CheckedRecipe const checked(recipe, &unavailable_reason);
  return detail::recipes_of(recipe.device)->make(model, checked, std::move(comm), options);
}

StepPlan record_step(AnyModel const& model, RecipeTable const& recipe, TrainerOptions const& options,
                     int rank, int world, Recorder& recorder, StepObserver const& observer) {
  CheckedRecipe const checked(recipe);
  detail::check_options(options, model.positions());
  StepShape const shape = step_shape(recipe, options, rank, world);
  auto const* const there = detail::recipes_of(recipe.device);
  return (there ? there : detail::cpu_recipes())->record(model, checked, options, shape, recorder, observer);
}

std::optional<std::string> unavailable_reason(RecipeTable const& recipe) {
  if (!detail::recipes_of(recipe.device))
    return "device " + std::string(name_of(recipe.device)) +
           " is not part of this build; use device cpu, or build with -DTESSERA_CUDA=ON";
  return unsupported_reason(recipe);
}

void need_device(Device device) {
  if (auto const* const recipes = detail::recipes_of(device)) recipes->need();
}

Device default_device() { return detail::cuda_recipes() ? Device::cuda : Device::cpu; }

std::vector<int> default_ranks(Device device) {
  auto const* const recipes = detail::recipes_of(device);
  return recipes ? recipes->default_ranks() : std::vector<int>{1};
}

DeviceFacts device_facts(Device device) {
  if (auto const* const recipes = detail::recipes_of(device)) return recipes->facts();
  DeviceFacts facts;
  facts.device = device;
  return facts;
}

std::unique_ptr<ProductPlans> measure_products(Device device, std::string const& folder) {
  if (auto const reason = unmeasurable_reason(device)) throw Error(ErrorKind::unsupported, *reason);
  return detail::recipes_of(device)->measure_products(folder);
}

std::optional<std::string> unmeasurable_reason(Device device) {
  auto const* const recipes = detail::recipes_of(device);
  if (recipes && recipes->measure_products) return std::nullopt;
  return "matrix products are measured on GPUs only, and " +
         (recipes ? "the device is " + std::string(name_of(device))
                  : "device " + std::string(name_of(device)) + " is not part of this build") +
         "; leave the product plans out, or " +
         (detail::cuda_recipes() ? "use device cuda" : "build with -DTESSERA_CUDA=ON");
}

void run_ranks(RecipeTable const& recipe, int ranks, std::function<void(comm::Comm&)> const& fn,
               RunOptions const& options) {
  detail::DeviceRecipes const& device = detail::need_recipes_of(recipe);
  std::shared_ptr<comm::Launch> const& launch = comm::launch_of_process();
  if (!launch) return device.run(ranks, fn, options);
  if (ranks != launch->world())
    throw Error(ErrorKind::usage, std::to_string(ranks) + " ranks were requested, but " +
                                      comm::describe(launch->environment()) +
                                      " has started this process; "
                                      "request as many ranks as the launcher starts");
  comm::run_in_launch(
      *launch, [&] { return device.connect(launch); }, fn, options);
}

MemoryLimit memory_limit(Device device, TrainerOptions const& options) {
  auto const* const recipes = detail::recipes_of(device);
  if (recipes && recipes->devices() > 0) return recipes->memory_limit(options);
  MemoryLimit limit = memory_limit_off_device(options);
  limit.device = options.memory_limit;
  return limit;
}

StepShape step_shape(RecipeTable const& recipe, TrainerOptions const& options, int rank, int world,
                     int host_ranks) {
  StepShape shape = step_shape<Cpu>(options, rank, world, recipe.precision, host_ranks);
  shape.own_memory = info_of(recipe.device).own_memory;
  if (recipe.device == Device::cuda)  // also in a library that was built without CUDA
    shape.workspace_bytes =
        static_cast<std::int64_t>(cuda::workspace_bytes(shape.batch * shape.sequence, recipe.precision));
  shape.max_steps_in_flight = info_of(recipe.device).max_steps_in_flight;
  return shape;
}

}  // namespace v0
}  // namespace tessera
