# SPDX-License-Identifier: Apache-2.0
# The kernel of matrix products keeps its operands and sums in registers on processors with AVX2: no fma reads memory, and
# no SIMD register is saved on the stack. Without keep_in_register, GCC 12 loads the right operand again for each fma when
# it tunes for Zen 3. So the test also removes this call from a copy of the header, and must then find such loads.
# The choice of registers depends on the compiler. Only compilers whose assembly was read take part.
# cmake -DCOMPILER=... -DNAME=... -DVERSION=... -DINCLUDE=... "-DEIGEN=-isystem;..." -DFOLDER=... -P kernel_registers.cmake
if(NOT "${NAME} ${VERSION}" MATCHES "^(GNU 12|Clang 14)\\.")
  message("skipped: the assembly of the kernel is known for GCC 12 and clang 14, and this compiler is ${NAME} ${VERSION}")
  return()
endif()
file(REMOVE_RECURSE "${FOLDER}")
file(MAKE_DIRECTORY "${FOLDER}/without/tessera/backend/cpu")
set(code "#include \"tessera/backend/cpu/microkernel.hpp\"\n")
foreach(type float double)
  foreach(packets 2 3)
    string(APPEND code "template void tessera::cpu::multiply_micro<${packets}, ${type}, ${type}>(std::int64_t, ${type} const*,
      std::int64_t, std::int64_t, ${type} const*, ${type}*, std::int64_t, bool);\n")
  endforeach()
endforeach()
file(WRITE "${FOLDER}/kernel.cpp" "${code}")
file(READ "${INCLUDE}/tessera/backend/cpu/microkernel.hpp" header)
string(REPLACE "keep_in_register(right[part]);" "" without "${header}")
if(without STREQUAL header)
  message(FATAL_ERROR "microkernel.hpp does not call keep_in_register(right[part])")
endif()
file(WRITE "${FOLDER}/without/tessera/backend/cpu/microkernel.hpp" "${without}")

# count(march include...): compiles the kernel and sets `loads` and `spills`, the numbers of instructions.
function(count march)
  list(TRANSFORM ARGN PREPEND "-I")
  execute_process(COMMAND "${COMPILER}" -std=c++20 -O3 -DNDEBUG -march=${march} ${ARGN} ${EIGEN} -S "${FOLDER}/kernel.cpp"
                          -o "${FOLDER}/kernel.s" RESULT_VARIABLE code ERROR_VARIABLE errors)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "the kernel does not compile with -march=${march}: ${errors}")
  endif()
  file(STRINGS "${FOLDER}/kernel.s" products REGEX "vfmadd[0-9]+p[sd]")
  list(LENGTH products products)
  if(products LESS 40)  # 8 and 12 for each of two types
    message(FATAL_ERROR "with -march=${march} the kernel has ${products} fma instructions: this test cannot read it")
  endif()
  file(STRINGS "${FOLDER}/kernel.s" loads REGEX "vfmadd[0-9]+p[sd].*\\(%r")
  file(STRINGS "${FOLDER}/kernel.s" spills REGEX "vmov.*\\(%r[sb]p\\)")
  list(LENGTH loads loads)
  list(LENGTH spills spills)
  set(loads ${loads} PARENT_SCOPE)
  set(spills ${spills} PARENT_SCOPE)
endfunction()

foreach(march znver3 x86-64-v3)
  count(${march} "${INCLUDE}")
  if(loads GREATER 0 OR spills GREATER 0)
    message(FATAL_ERROR "with -march=${march} ${loads} fma instructions of the kernel read memory, and ${spills} moves are "
                        "to or from the stack: ${FOLDER}/kernel.s")
  endif()
endforeach()
if(NAME STREQUAL "GNU")
  count(znver3 "${FOLDER}/without" "${INCLUDE}")
  if(loads EQUAL 0)
    message(FATAL_ERROR "without keep_in_register this compiler loads nothing again, so this test would not notice its loss")
  endif()
endif()
