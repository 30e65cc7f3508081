// SPDX-License-Identifier: Apache-2.0
// Opens the folder of --product-plans and reports problems with it. The folder stores measured product plans.
// A product plan is the choice of the fastest algorithm for one size of matrix product.
#pragma once

#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>

#include "tessera/core/error.hpp"
#include "tessera/core/place.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/train/any_trainer.hpp"

#include "cli/command_line.hpp"

namespace programs {
using namespace tessera;
namespace cli {

inline void add_product_plans_flag(CommandLine& line, std::filesystem::path& folder) {
  line.path("--product-plans", "FOLDER", folder,
            "on GPUs: time the algorithms of each matrix product once, and store the fastest one with equal "
            "bits in this folder");
}

/// Throws Error(unsupported) if a folder is given and matrix products on this device cannot be measured.
inline void check_product_plans(std::filesystem::path const& folder, Device device) {
  if (folder.empty()) return;
  if (auto const reason = unmeasurable_reason(device))
    throw Error(ErrorKind::unsupported, "--product-plans " + files::path_text(folder) + ": " + *reason);
}

/// Opens the folder and returns its product plans; null if `folder` is empty. The returned object must
/// outlive every trainer.
inline std::shared_ptr<ProductPlans> open_product_plans(std::filesystem::path const& folder, Device device) {
  if (folder.empty()) return nullptr;
  try {
    return measure_products(device, folder.string());
  } catch (Error const& error) {
    throw Error(error.kind(), std::string("--product-plans ") + error.what());
  }
}

/// Returns how the algorithms of matrix products were chosen on this device: "measured" or "library"; "" if
/// the device has only one algorithm.
inline std::string product_plans_text(Device device, bool measured) {
  return device != Device::cuda ? "" : measured ? "measured" : "library";
}

/// If some product plans could not be measured or stored, prints a warning to standard error.
inline void warn_of_plans(ProductPlans const* plans) {
  std::string const failure = plans ? plans->failure() : std::string();
  if (failure.empty()) return;
  std::cout.flush();
  std::cerr << "warning: --product-plans " << files::printable(failure, failure.size())
            << "; results are not affected" << std::endl;
}

}  // namespace cli
}  // namespace programs
