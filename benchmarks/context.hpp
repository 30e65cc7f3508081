// SPDX-License-Identifier: Apache-2.0
// Adds facts about the machine and the build to the report of a benchmark: CPU, compiler, flags, instruction
// set, and the versions of Eigen and Tessera.
#pragma once

#include <algorithm>
#include <fstream>
#include <string>

// Includes only Eigen's version, because all of Eigen adds a second of compile time to each source file.
#if __has_include(<Eigen/Version>)
#include <Eigen/Version>
#else
#include <Eigen/src/Core/util/Macros.h>
#endif
#include <benchmark/benchmark.h>

#include "tessera/config.hpp"
#include "tessera/version.hpp"

namespace tessera_benchmarks {

inline std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.find(": ") + 2, line.size()));
  return "unknown";
}

inline bool add_context() {
  benchmark::AddCustomContext("cpu", cpu_model());
#if defined(__clang__)
  benchmark::AddCustomContext("compiler", "clang " __clang_version__);
#elif defined(__GNUC__)
  benchmark::AddCustomContext("compiler", "g++ " __VERSION__);
#endif
#if defined(TESSERA_COMPILE_FLAGS)
  benchmark::AddCustomContext("compile_flags", TESSERA_COMPILE_FLAGS);
#endif
#if defined(TESSERA_ISA)
  benchmark::AddCustomContext("compiled_for", TESSERA_ISA);
#endif
#if defined(NDEBUG)
  benchmark::AddCustomContext("assertions", "off");
#else
  benchmark::AddCustomContext("assertions", "on");
#endif
  benchmark::AddCustomContext("eigen", std::to_string(EIGEN_WORLD_VERSION) + "." +
                                           std::to_string(EIGEN_MAJOR_VERSION) + "." +
                                           std::to_string(EIGEN_MINOR_VERSION));
  benchmark::AddCustomContext("tessera", tessera::version);
  return true;
}

[[maybe_unused]] inline bool const context_added = add_context();

}  // namespace tessera_benchmarks
