// SPDX-License-Identifier: Apache-2.0
// Includes xxHash as inline code. Every file that hashes must include this header, never <xxhash.h> itself.
#pragma once

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif

// xxHash passes pointers to functions that must be inlined (always_inline). GCC can inline such calls only at
// -O1 and above. With -Og it stops with the error "inlining failed in call to 'always_inline'". xxHash itself
// compiles its AVX2 code at -O2; this header compiles the code for the other instruction sets at -O2 too.
// Without optimization, xxHash does not use always_inline.
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#ifdef __CUDACC__
#pragma nv_diag_push
#pragma nv_diag_suppress 1675  // nvcc does not know the GCC pragmas below and passes them to GCC
#endif
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC reports false positives in AVX-512 intrinsics
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
