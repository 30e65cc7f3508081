// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: arbitrary bytes are read as a file of cuBLASLt plans. A plan is the chosen algorithm for
// one matrix product. Each plan that is read must give a line of the file if it is written again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tessera/backend/cuda/products/plan_file.hpp"

#include "fuzz/support.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* input, std::size_t size) {
  std::string_view const text = fuzz::text_of(input, size);
  tessera::cuda::PlanFile const file(fuzz::file_of(text), false);
  std::size_t plans = 0;
  std::string_view rest = text;
  for (std::size_t end; (end = rest.find('\n')) != rest.npos; rest.remove_prefix(end + 1)) {
    auto const plan = tessera::cuda::read_plan(rest.substr(0, end));
    if (!plan) continue;
    ++plans;
    if (!file.find(plan->first)) std::abort();
    if (tessera::cuda::plan_line(*plan) != rest.substr(0, end + 1)) std::abort();
  }
  if (file.size() > plans) std::abort();
  return 0;
}
