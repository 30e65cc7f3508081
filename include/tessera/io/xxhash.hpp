// SPDX-License-Identifier: Apache-2.0
// Includes xxHash as inline code. Every file that hashes includes this header, never <xxhash.h> itself.
#pragma once

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif

// xxHash passes functions that must be inlined (always_inline) as pointers. GCC can inline such calls only at
// -O1 and above; with -Og it stops with "inlining failed in call to 'always_inline'". xxHash compiles its
// AVX2 code at -O2 itself; this header does the same for the other instruction sets. Without optimization
// xxHash does not use the attribute.
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#ifdef __CUDACC__
#pragma nv_diag_push
#pragma nv_diag_suppress 1675  // nvcc does not know these pragmas and passes them to GCC
#endif
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // false positives in AVX-512 intrinsics
#pragma GCC diagnostic ignored "-Wuninitialized"
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#pragma GCC push_options
#pragma GCC optimize("O2")
#include <xxhash.h>
#pragma GCC pop_options
#pragma GCC diagnostic pop
#ifdef __CUDACC__
#pragma nv_diag_pop
#endif
#else
#include <xxhash.h>
#endif
