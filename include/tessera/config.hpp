// SPDX-License-Identifier: Apache-2.0
// Defines macros that depend on the compiler, its target instruction set and the libraries that a program
// links. Also makes the link of a program fail if its source files were compiled for different instruction
// sets.
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

// The CPU backend multiplies bfloat16 matrices with the instruction vdpbf16ps if the target has it
// (AVX512_BF16). A program that switches off Eigen's SIMD code (EIGEN_DONT_VECTORIZE) does not use the
// instruction.
#if defined(__AVX512BF16__) && defined(__AVX512BW__) && defined(__AVX512VL__) && \
    !defined(EIGEN_DONT_VECTORIZE) && !defined(__CUDA_ARCH__)
#define TESSERA_AVX512_BF16
#endif

// If the target also has AMX tiles, the CPU backend multiplies bfloat16 matrices with the instruction
// tdpbf16ps instead. At run time, the operating system must permit the use of tiles (backend/cpu/tiles.hpp).
#if defined(TESSERA_AVX512_BF16) && defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__linux__)
#define TESSERA_AMX_BF16
#endif

// Every translation unit of a program must be compiled for the same instruction set, and Eigen's SIMD code
// must be on in all of them or off in all of them. Otherwise the linker would silently merge different
// versions of an inline function. The assembler code below makes the link of such a program fail.
//
// A number encodes the settings of a translation unit. The assembler code defines the weak symbol
// `tessera_isa` with this number as its value. The linker keeps the definition of one unit. The assembler
// code also stores a field: the kept value minus the number of the unit. The numbers are multiples of 2^32,
// so the field has enough bits only for the difference 0. If a unit has other settings than the unit whose
// definition is kept, the linker reports that the field overflows. The error names the section of the field,
// `tessera_isa_<settings of the unit>`.
//
// Link-time optimization joins units before they are assembled. The assembler then compares the numbers
// itself (.if). The section of the field is not loaded when the program runs.
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
// The number is never 0, because the assembler that g++ uses would drop a symbol with the value 0. The digits
// of the settings are the upper half of the number.
#define TESSERA_ISA_DIGITS                                                                    \
  TESSERA_ISA_EIGEN_DIGIT TESSERA_ISA_BF16_DIGIT TESSERA_ISA_F16C_DIGIT TESSERA_ISA_FMA_DIGIT \
      TESSERA_ISA_SIMD_DIGIT
#define TESSERA_ISA_NUMBER "0x" TESSERA_ISA_DIGITS "00000000"
// Clang's assembler would compute the difference itself, from the definition in the same unit. With the
// relocation @ABS8 it leaves the computation to the linker.
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
// The CMake target tessera::recipes is a library of compiled engines. An engine is the code that trains with
// one device and one number format. A program that links the library gets the macro TESSERA_RECIPES_LINKED,
// and TESSERA_RECIPES_CUDA if the library has GPU engines. A source file then uses the compiled engines of
// the library. A source file that nvcc compiles does so only if the library has GPU engines.
#if defined(TESSERA_RECIPES_LINKED) && (defined(TESSERA_RECIPES_CUDA) || !defined(__CUDACC__))
#define TESSERA_LINKED_ENGINES
#endif
// Functions for checkpoints and weight files are declared in a header NAME.hpp and defined in
// NAME_definitions.hpp. NAME.hpp normally includes NAME_definitions.hpp, and the functions are inline. If
// tessera::recipes is linked, NAME.hpp does not include NAME_definitions.hpp, because the library contains
// the compiled functions.
#if defined(TESSERA_RECIPES_LINKED)
#define TESSERA_INLINE
#else
#define TESSERA_INCLUDE_DEFINITIONS
#define TESSERA_INLINE inline
#endif
