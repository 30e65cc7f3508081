// SPDX-License-Identifier: Apache-2.0
// The only header that asks which compiler this is. Nothing here changes the meaning of a type.
#pragma once

#if defined(_MSVC_LANG)
#define TESSERA_CPLUSPLUS _MSVC_LANG
#else
#define TESSERA_CPLUSPLUS __cplusplus
#endif

#if TESSERA_CPLUSPLUS < 202002L
#error "tessera needs C++20: pass -std=c++20 (CMake: target_compile_features(app PRIVATE cxx_std_20))."
#endif

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ != 0)
#error "tessera needs values that are not finite, to see overflows: compile without -ffast-math and -Ofast."
#endif

#if defined(__CUDACC__)
#define TESSERA_HOST_DEVICE __host__ __device__
#else
#define TESSERA_HOST_DEVICE
#endif

// Every translation unit of a program must agree on the instruction set, and on whether Eigen uses it, or one
// definition of an inline function would silently stand for two. Each unit defines `tessera_isa_<its own
// settings>` inside the one comdat group `tessera_isa` and refers to it from outside that group. The linker
// keeps a single group, so a unit with other settings is left with an undefined symbol that names them.
#if defined(__ELF__) && defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)) && \
    !defined(__CUDA_ARCH__)
#if defined(__AVX512F__)
#define TESSERA_ISA_SIMD "avx512"
#elif defined(__AVX2__)
#define TESSERA_ISA_SIMD "avx2"
#elif defined(__AVX__)
#define TESSERA_ISA_SIMD "avx"
#else
#define TESSERA_ISA_SIMD "sse2"
#endif
#if defined(__FMA__)
#define TESSERA_ISA_FMA "_fma"
#else
#define TESSERA_ISA_FMA ""
#endif
#if defined(__F16C__)
#define TESSERA_ISA_F16C "_f16c"
#else
#define TESSERA_ISA_F16C ""
#endif
#if defined(EIGEN_DONT_VECTORIZE)
#define TESSERA_ISA_EIGEN "_eigen_scalar"
#else
#define TESSERA_ISA_EIGEN ""
#endif
#define TESSERA_ISA_SYMBOL "tessera_isa_" TESSERA_ISA_SIMD TESSERA_ISA_FMA TESSERA_ISA_F16C TESSERA_ISA_EIGEN
// clang-format off
__asm__(
    ".pushsection .rodata.tessera_isa,\"aG\",@progbits,tessera_isa,comdat\n"
    ".globl " TESSERA_ISA_SYMBOL "\n"
    ".hidden " TESSERA_ISA_SYMBOL "\n"
    TESSERA_ISA_SYMBOL ": .byte 0\n"
    ".popsection\n"
    ".pushsection .data.rel.ro.tessera_isa_use,\"aw\",@progbits\n"
    ".quad " TESSERA_ISA_SYMBOL "\n"
    ".popsection\n");
// clang-format on
#endif
