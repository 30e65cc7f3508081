// SPDX-License-Identifier: Apache-2.0
// Lists the documented peak rates of GPUs.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "tessera/core/dtype.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// Returns the documented peak FLOP/s of one device for dense matrix products in a precision; nullopt if
/// unknown. The figures are from NVIDIA's data sheets and its papers "H100 Tensor Core GPU Architecture",
/// "Ada GPU Architecture" and "Ampere GA102 GPU Architecture" (appendix A each, with fp32 sums). The data
/// sheets give some rates for sparse matrices; these are halved here. The rate of fp32 is the rate without
/// tensor cores. bf16x6 and bf16x3 compute an fp32 product as 6 or 3 bf16 products, so they have 1/6 and 1/3
/// of the rate of bf16.
inline std::optional<double> peak_flops(std::string_view device_model, DType precision) {
  struct Peak {
    std::string_view model;  // the name that the driver reports
    double half, tf32, fp32;
  };
  constexpr double tera = 1e12;
  constexpr auto peaks = std::to_array<Peak>({
      {"NVIDIA H200", 989.4, 494.7, 66.9},
      {"NVIDIA H200 NVL", 835.5, 417.5, 60.0},
      {"NVIDIA H100 80GB HBM3", 989.4, 494.7, 66.9},
      {"NVIDIA H100 NVL", 835.5, 417.5, 60.0},
      {"NVIDIA H100 PCIe", 756.0, 378.0, 51.2},
      {"NVIDIA A100-SXM4-40GB", 312.0, 156.0, 19.5},
      {"NVIDIA A100-SXM4-80GB", 312.0, 156.0, 19.5},
      {"NVIDIA A100-PCIE-40GB", 312.0, 156.0, 19.5},
      {"NVIDIA A100 80GB PCIe", 312.0, 156.0, 19.5},
      {"NVIDIA L40S", 362.0, 183.0, 91.6},
      {"NVIDIA L4", 121.0, 60.0, 30.3},
      {"NVIDIA GeForce RTX 4090", 165.2, 82.6, 82.6},
      {"NVIDIA GeForce RTX 3090", 71.0, 35.6, 35.6},
  });
  for (Peak const& peak : peaks) {
    if (peak.model != device_model) continue;
    switch (precision) {
      case DType::f16:
      case DType::bf16:
        return peak.half * tera;
      case DType::bf16x6:
      case DType::bf16x3:
        return peak.half * tera / piece_terms(precision);
      case DType::tf32:
        return peak.tf32 * tera;
      case DType::f32:
        return peak.fp32 * tera;
      default:
        return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace cli
}  // namespace programs
