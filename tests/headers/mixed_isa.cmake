# SPDX-License-Identifier: Apache-2.0
# Translation units of different instruction sets must not link into one program; units of one set must. This holds without
# link-time optimisation, with it, and for one unit of each kind.
# cmake -DCOMPILER=... -DINCLUDE=... -DFOLDER=... -P mixed_isa.cmake
file(REMOVE_RECURSE "${FOLDER}")
file(MAKE_DIRECTORY "${FOLDER}")
file(WRITE "${FOLDER}/one.cpp" "#include <tessera/config.hpp>\nint one() { return 0; }\n")
file(WRITE "${FOLDER}/two.cpp" "#include <tessera/config.hpp>\nint one();\nint main() { return one(); }\n")
file(WRITE "${FOLDER}/plain.cpp" "int main() {}\n")

# Clang before 15 lacks this macro, so the library does not use tiles there.
execute_process(COMMAND "${COMPILER}" -mamx-tile -mamx-bf16 -dM -E "${FOLDER}/plain.cpp" OUTPUT_VARIABLE macros ERROR_QUIET)
set(knows_tiles OFF)
if(macros MATCHES "__AMX_BF16__")
  set(knows_tiles ON)
endif()

function(compile source object)
  execute_process(COMMAND "${COMPILER}" -std=c++20 -O1 ${ARGN} "-I${INCLUDE}" -c "${FOLDER}/${source}.cpp"
                          -o "${FOLDER}/${object}.o" RESULT_VARIABLE code ERROR_VARIABLE errors)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "compiling ${source}.cpp with '${ARGN}' failed: ${errors}")
  endif()
endfunction()

# link(program flag object...): links objects; sets `code` and `errors`.
function(link program flag)
  list(TRANSFORM ARGN REPLACE "(.+)" "${FOLDER}/\\1.o")
  execute_process(COMMAND "${COMPILER}" -O1 ${flag} ${ARGN} -o "${FOLDER}/${program}" RESULT_VARIABLE code
                  ERROR_VARIABLE errors)
  set(code "${code}" PARENT_SCOPE)
  set(errors "${errors}" PARENT_SCOPE)
endfunction()

# check(first second): `first` is the flag of the first unit, `second` the flag of the second unit and of the linker.
function(check first second)
  set(how "units with '${first}' and '${second}'")
  compile(one one ${first} -msse2)
  compile(two same ${second} -msse2)
  compile(two other ${second} -mavx2)
  compile(two scalar ${second} -msse2 -DEIGEN_DONT_VECTORIZE)
  compile(one wide ${first} -mavx512bw -mavx512vl)
  compile(two bf16 ${second} -mavx512bw -mavx512vl -mavx512bf16)
  set(tiles "")
  if(knows_tiles)
    compile(one tiles ${first} -mavx512bw -mavx512vl -mavx512bf16 -mamx-tile -mamx-bf16)
    set(tiles "tiles;bf16;avx512[a-z0-9_]*")
  endif()
  link(program "${second}" one same)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${how} of one instruction set do not link: ${errors}")
  endif()
  execute_process(COMMAND "${FOLDER}/program" RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "the program of ${how} exits with ${code}")
  endif()
  foreach(mixed "one;other;sse2|avx2" "other;one;sse2|avx2" "one;scalar;sse2_eigen_scalar"
                "wide;bf16;avx512[a-z0-9_]*" "${tiles}")
    if(mixed STREQUAL "")
      continue()
    endif()
    list(POP_BACK mixed name)
    link(mixed "${second}" ${mixed})
    if(code EQUAL 0)
      message(FATAL_ERROR "${how} of two instruction sets, ${mixed}, link into one program")
    endif()
    if(NOT errors MATCHES "tessera_isa_(${name})")
      message(FATAL_ERROR "for ${how}, ${mixed}, the linker does not name the instruction set: ${errors}")
    endif()
  endforeach()
endfunction()

check("" "")
foreach(flag -flto -flto=thin)
  execute_process(COMMAND "${COMPILER}" -O1 ${flag} "${FOLDER}/plain.cpp" -o "${FOLDER}/plain" RESULT_VARIABLE code
                  OUTPUT_QUIET ERROR_QUIET)
  if(NOT code EQUAL 0)
    message(STATUS "this compiler and its linker do not do ${flag}")
    continue()
  endif()
  check(${flag} ${flag})
  check("" ${flag})
endforeach()
