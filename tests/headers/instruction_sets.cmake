# SPDX-License-Identifier: Apache-2.0
# cmake -DCOMPILER=... -DROOT=... -DWORK=... "-DINCLUDES=-isystem;<dir>..." -P instruction_sets.cmake
# Compiles a source that uses every third-party header with intrinsics, for each instruction set and optimization level of
# users' builds. The objects do not run, so this machine may lack the instruction set. `-fsyntax-only` is not enough, since
# the compiler inlines such functions only when it emits code.
cmake_minimum_required(VERSION 3.25)
set(sets x86-64 x86-64-v3 icelake-server sapphirerapids native)
set(levels -O0 -Og -O2)
set(source tests/headers/intrinsics.cpp)
file(MAKE_DIRECTORY "${WORK}/instruction_sets")

# Only two headers may include such a library. The source above must contain every xxHash call of the other files.
file(READ "${ROOT}/${source}" calls)
file(GLOB_RECURSE files RELATIVE "${ROOT}" "${ROOT}/include/*" "${ROOT}/examples/*.[ch]pp")
foreach(file IN LISTS files)
  file(STRINGS "${ROOT}/${file}" found REGEX "#include <(xxhash|[a-z]+intrin)\\.h>|#include <Eigen/(Core|Dense|src/Core/arch)")
  if(found AND NOT file MATCHES "^include/tessera/(io/xxhash|backend/cpu/eigen_packets)\\.hpp$")
    message(FATAL_ERROR "${file} includes a header with intrinsics: ${found}. Include tessera/io/xxhash.hpp or "
      "tessera/backend/cpu/packet.hpp instead, or add the file to this test.")
  endif()
  file(STRINGS "${ROOT}/${file}" lines REGEX "XXH[A-Za-z0-9_]+\\(")
  string(REGEX MATCHALL "XXH[A-Za-z0-9_]+\\(" made "${lines}")
  foreach(call IN LISTS made)
    string(FIND "${calls}" "${call}" place)
    if(place EQUAL -1)
      message(FATAL_ERROR "${file} calls ${call}), but ${source} does not. Add the call there.")
    endif()
  endforeach()
endforeach()

set(count 0)
set(failed "")
foreach(set IN LISTS sets)
  foreach(level IN LISTS levels)
    execute_process(COMMAND "${COMPILER}" -std=c++20 ${level} -march=${set} "-I${ROOT}/include" "-I${ROOT}/examples" "-I${ROOT}/examples/programs"
                            ${INCLUDES} -c "${ROOT}/${source}" -o "${WORK}/instruction_sets/object.o"
                    RESULT_VARIABLE code ERROR_VARIABLE errors)
    math(EXPR count "${count} + 1")
    if(NOT code EQUAL 0)
      string(REGEX MATCH "[^\n]*error:[^\n]*" error "${errors}")
      list(APPEND failed "-march=${set} ${level}: ${error}")
    endif()
  endforeach()
endforeach()
if(failed)
  list(JOIN failed "\n  " failed)
  message(FATAL_ERROR "do not compile:\n  ${failed}")
endif()
message(STATUS "${count} objects compiled")
