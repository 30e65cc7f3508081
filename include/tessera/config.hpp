// SPDX-License-Identifier: Apache-2.0
// Detects the compiler and its target instruction set. Nothing here changes the meaning of a type.
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
#error \
    "tessera detects overflows as inf and NaN, which -ffast-math and -Ofast assume away: compile without them."
#endif

#if defined(__CUDACC__)
#define TESSERA_HOST_DEVICE __host__ __device__
#else
#define TESSERA_HOST_DEVICE
#endif

// Matrix products of bfloat16 on the CPU use vdpbf16ps if the target has it and Eigen uses its widest
// vectors.
#if defined(__AVX512BF16__) && defined(__AVX512BW__) && defined(__AVX512VL__) && \
    !defined(EIGEN_DONT_VECTORIZE) && !defined(__CUDA_ARCH__)
#define TESSERA_AVX512_BF16
#endif

// Matrix products of bfloat16 use tdpbf16ps instead if the target has AMX tiles and the operating system
// permits their use (backend/cpu/tiles.hpp).
#if defined(TESSERA_AVX512_BF16) && defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__linux__)
#define TESSERA_AMX_BF16
#endif

// Every translation unit of a program must use the same instruction set, and agree on whether Eigen uses it.
// Otherwise the linker would silently merge different versions of an inline function. So each unit sets the
// weak symbol `tessera_isa` to a number for its settings, and the linker keeps one of them. Each unit also
// stores the difference between that number and its own in a field that can hold only 0. A unit with other
// settings therefore does not link, and the linker's error names the section, `tessera_isa_<its settings>`.
// Link-time optimization joins units before they are assembled, so there the assembler compares. The stored
// bytes are debugging data, which no program loads.
#if defined(__ELF__) && defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)) && \
    !defined(__CUDA_ARCH__)
#if defined(__AVX512F__)
#define TESSERA_ISA_SIMD "avx512"
#define TESSERA_ISA_SIMD_DIGIT "4"
#elif defined(__AVX2__)
#define TESSERA_ISA_SIMD "avx2"
#define TESSERA_ISA_SIMD_DIGIT "3"
#elif defined(__AVX__)
#define TESSERA_ISA_SIMD "avx"
#define TESSERA_ISA_SIMD_DIGIT "2"
#else
#define TESSERA_ISA_SIMD "sse2"
#define TESSERA_ISA_SIMD_DIGIT "1"
#endif
#if defined(__FMA__)
#define TESSERA_ISA_FMA "_fma"
#define TESSERA_ISA_FMA_DIGIT "1"
#else
#define TESSERA_ISA_FMA ""
#define TESSERA_ISA_FMA_DIGIT "0"
#endif
#if defined(__F16C__)
#define TESSERA_ISA_F16C "_f16c"
#define TESSERA_ISA_F16C_DIGIT "1"
#else
#define TESSERA_ISA_F16C ""
#define TESSERA_ISA_F16C_DIGIT "0"
#endif
#if defined(TESSERA_AMX_BF16)
#define TESSERA_ISA_BF16 "_bf16_amx"
#define TESSERA_ISA_BF16_DIGIT "2"
#elif defined(TESSERA_AVX512_BF16)
#define TESSERA_ISA_BF16 "_bf16"
#define TESSERA_ISA_BF16_DIGIT "1"
#else
#define TESSERA_ISA_BF16 ""
#define TESSERA_ISA_BF16_DIGIT "0"
#endif
#if defined(EIGEN_DONT_VECTORIZE)
#define TESSERA_ISA_EIGEN "_eigen_scalar"
#define TESSERA_ISA_EIGEN_DIGIT "1"
#else
#define TESSERA_ISA_EIGEN ""
#define TESSERA_ISA_EIGEN_DIGIT "0"
#endif
#define TESSERA_ISA TESSERA_ISA_SIMD TESSERA_ISA_FMA TESSERA_ISA_F16C TESSERA_ISA_BF16 TESSERA_ISA_EIGEN
#define TESSERA_ISA_NAME "tessera_isa_" TESSERA_ISA
// The number is never 0, because g++'s assembler would drop a symbol of value 0.
#define TESSERA_ISA_DIGITS                                                                    \
  TESSERA_ISA_EIGEN_DIGIT TESSERA_ISA_BF16_DIGIT TESSERA_ISA_F16C_DIGIT TESSERA_ISA_FMA_DIGIT \
      TESSERA_ISA_SIMD_DIGIT
#define TESSERA_ISA_NUMBER "0x" TESSERA_ISA_DIGITS "00000000"
// Clang's assembler would compute the difference itself. The relocation @ABS8 leaves the computation to the
// linker.
#if defined(__clang__)
#define TESSERA_ISA_FIELD ".byte tessera_isa@ABS8"
#else
#define TESSERA_ISA_FIELD ".long tessera_isa"
#endif
// clang-format off
__asm__(
    ".ifdef tessera_isa\n"
    ".if tessera_isa != " TESSERA_ISA_NUMBER "\n"
    ".error \"tessera: this program mixes sources compiled for different instruction sets; give all the same -march; one is " TESSERA_ISA_NAME " among them\"\n"
    ".endif\n"
    ".else\n"
    ".pushsection ." TESSERA_ISA_NAME ",\"\",@progbits\n"
    TESSERA_ISA_FIELD " - " TESSERA_ISA_NUMBER "\n"
    ".popsection\n"
    ".weak tessera_isa\n"
    ".hidden tessera_isa\n"
    ".set tessera_isa, " TESSERA_ISA_NUMBER "\n"
    ".endif\n");
// clang-format on
#endif
// The target tessera::recipes defines macros that say that it is linked and whether it has GPU engines. A
// source compiled by nvcc takes engines from it only if it has GPU engines.
#if defined(TESSERA_RECIPES_LINKED) && (defined(TESSERA_RECIPES_CUDA) || !defined(__CUDACC__))
#define TESSERA_LINKED_ENGINES
#endif
// Functions for checkpoints and weight files are declared in one header and defined in the header of the same
// name with _definitions. The first includes the second, whose functions are inline. If tessera::recipes is
// linked, it does not, because that library contains them compiled.
#if defined(TESSERA_RECIPES_LINKED)
#define TESSERA_INLINE
#else
#define TESSERA_INCLUDE_DEFINITIONS
#define TESSERA_INLINE inline
#endif
