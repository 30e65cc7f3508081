// SPDX-License-Identifier: Apache-2.0
// Provides tiles_granted, which says whether this process may use Intel's tiles (AMX). With these registers,
// the processor multiplies bfloat16 matrices.
#pragma once

#include "tessera/config.hpp"

#if defined(TESSERA_AMX_BF16)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tessera {
inline namespace v0 {
namespace cpu {

#if defined(TESSERA_AMX_BF16)

namespace detail {

/// Checks the processor and requests permission from the kernel. Returns whether the process may use tiles.
/// Without the permission, using a tile raises SIGILL (Linux, Documentation/arch/x86/xstate.rst).
inline bool request_tiles() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned bf16 = 1u << 22, tile = 1u << 24;
  constexpr long request_permission = 0x1023, tile_data = 18;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & bf16) != 0 && (d & tile) != 0 &&
         ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

}  // namespace detail

/// Whether this process may use tiles. The first call requests the permission from the kernel, for all
/// threads of the process.
inline bool tiles_granted() noexcept {
  static bool const granted = detail::request_tiles();
  return granted;
}

#else

inline bool tiles_granted() noexcept { return false; }

#endif

}  // namespace cpu
}  // namespace v0
}  // namespace tessera
