// SPDX-License-Identifier: Apache-2.0
// Implements the functions that the library tessera::recipes needs for GPUs (DeviceRecipes in devices.hpp).
#include "tessera/backend/cuda/products/measured_plans.cuh"
#include "tessera/cuda.cuh"
#include "tessera/recipes/devices.hpp"

namespace tessera {
inline namespace v0 {
namespace detail {

namespace {

int count_gpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::vector<int> one_two_four() {
  std::vector<int> ranks{1};
  for (int const more : {2, 4})
    if (count_gpus() >= more) ranks.push_back(more);
  return ranks;
}

DeviceFacts facts_of_gpus() {
  DeviceFacts facts;
  facts.device = Device::cuda;
  for (int gpu = 0; gpu < count_gpus(); ++gpu) {
    cudaDeviceProp about{};
    if (cudaGetDeviceProperties(&about, gpu) == cudaSuccess) facts.models.emplace_back(about.name);
    char address[32] = "";
    facts.addresses.emplace_back(
        cudaDeviceGetPCIBusId(address, static_cast<int>(sizeof address), gpu) == cudaSuccess ? address : "");
  }
  auto const version = [](cudaError_t status, int number) {  // 13000 becomes "13.0"
    return status != cudaSuccess || number == 0
               ? std::string()
               : std::to_string(number / 1000) + "." + std::to_string(number / 10 % 100);
  };
  int number = 0;
  cudaError_t status = cudaDriverGetVersion(&number);
  facts.driver = version(status, number);
  status = cudaRuntimeGetVersion(&number);
  facts.runtime = version(status, number);
  std::size_t const blas = cublasLtGetVersion();  // 130002 becomes "13.0.2"
  facts.products = std::to_string(blas / 10000) + "." + std::to_string(blas / 100 % 100) + "." +
                   std::to_string(blas % 100);
  facts.transport = nccl_version();
  return facts;
}

/// While this object exists, trainers on GPUs use the measured algorithms of matrix products in its folder.
class InstalledPlans final : public ProductPlans {
 public:
  explicit InstalledPlans(std::string const& folder) : plans_(folder, true) { plans_.install(); }
  std::size_t take_used() override { return plans_.take_used(); }
  std::string failure() const override { return plans_.failure(); }

 private:
  cuda::MeasuredPlans plans_;
};

std::unique_ptr<ProductPlans> measure_products_of_gpus(std::string const& folder) {
  return std::make_unique<InstalledPlans>(folder);
}

}  // namespace

static_assert(info_of(Device::cuda).own_memory == has_own_memory<Cuda> &&
              (info_of(Device::cuda).max_steps_in_flight > 0) == !Context<Cuda>::immediate);

DeviceRecipes const* cuda_recipes() {
  static DeviceRecipes const recipes{.make = &make_engine_on<Cuda>,
                                     .record = &record_on<Cuda>,
                                     .devices = &count_gpus,
                                     .need = [] { cuda::select_device(0); },
                                     .default_ranks = &one_two_four,
                                     .facts = &facts_of_gpus,
                                     .memory_limit = &memory_limit<Cuda>,
                                     .run = &run_on_gpus,
                                     .connect = &connect_gpus,
                                     .measure_products = &measure_products_of_gpus};
  return &recipes;
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
