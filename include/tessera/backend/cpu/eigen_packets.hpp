// SPDX-License-Identifier: Apache-2.0
// Provides Eigen's SIMD packets without its matrices, which cause most of the compile time of Eigen/Core. For
// x86-64 and Eigen 3.4, this header includes the packet headers of Eigen/Core, in the same order. A program
// may include Eigen before or after this header. For newer versions of Eigen and for other processors, this
// header includes Eigen/Core.
#pragma once

// Otherwise Eigen has no vector instructions of the CPU under nvcc, and its types have another layout than in
// files that g++ compiles. nvcc would also warn of Eigen's code for GPUs, which Tessera does not use.
#if defined(__CUDACC__) && !defined(EIGEN_NO_CUDA)
#define EIGEN_NO_CUDA
#endif

#if defined(__x86_64__) && !defined(__CUDACC__) && !defined(EIGEN_CORE_H) && \
    !__has_include(<Eigen/src/Core/InternalHeaderCheck.h>)

// clang-format off
#include <Eigen/src/Core/util/DisableStupidWarnings.h>
#include <Eigen/src/Core/util/Macros.h>
#include <Eigen/src/Core/util/ConfigureVectorization.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <climits>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <new>
#include <string>
#include <type_traits>

namespace Eigen {
using std::ptrdiff_t;
using std::size_t;
}  // namespace Eigen

#include <Eigen/src/Core/util/Constants.h>
#include <Eigen/src/Core/util/Meta.h>
#include <Eigen/src/Core/util/ForwardDeclarations.h>
#include <Eigen/src/Core/util/StaticAssert.h>
#include <Eigen/src/Core/util/XprHelper.h>
#include <Eigen/src/Core/util/Memory.h>
#include <Eigen/src/Core/util/IntegralConstant.h>
#include <Eigen/src/Core/util/SymbolicIndex.h>
#include <Eigen/src/Core/NumTraits.h>
#include <Eigen/src/Core/MathFunctions.h>
#include <Eigen/src/Core/GenericPacketMath.h>
#include <Eigen/src/Core/MathFunctionsImpl.h>
#include <Eigen/src/Core/arch/Default/ConjHelper.h>
#include <Eigen/src/Core/arch/Default/Half.h>
#include <Eigen/src/Core/arch/Default/BFloat16.h>
#include <Eigen/src/Core/arch/Default/TypeCasting.h>
#include <Eigen/src/Core/arch/Default/GenericPacketMathFunctionsFwd.h>
#if defined(EIGEN_VECTORIZE_SSE)
#include <Eigen/src/Core/arch/SSE/PacketMath.h>
#include <Eigen/src/Core/arch/SSE/TypeCasting.h>
#endif
#if defined(EIGEN_VECTORIZE_AVX)
#include <Eigen/src/Core/arch/AVX/PacketMath.h>
#include <Eigen/src/Core/arch/AVX/TypeCasting.h>
#endif
#if defined(EIGEN_VECTORIZE_AVX512)
#include <Eigen/src/Core/arch/AVX512/PacketMath.h>
#include <Eigen/src/Core/arch/AVX512/TypeCasting.h>
#endif
#if defined(EIGEN_VECTORIZE_SSE)
#include <Eigen/src/Core/arch/SSE/MathFunctions.h>
#endif
#if defined(EIGEN_VECTORIZE_AVX)
#include <Eigen/src/Core/arch/AVX/MathFunctions.h>
#endif
#if defined(EIGEN_VECTORIZE_AVX512)
#include <Eigen/src/Core/arch/AVX512/MathFunctions.h>
#endif
#include <Eigen/src/Core/arch/Default/Settings.h>
#include <Eigen/src/Core/arch/Default/GenericPacketMathFunctions.h>
#include <Eigen/src/Core/util/ReenableStupidWarnings.h>
// clang-format on

#else

#include <Eigen/Core>

#endif
