# SPDX-License-Identifier: Apache-2.0
# cmake -DCOMPILER=g++ -DROOT=<repository> -DEIGEN=<folder> -DFOLDER=<folder> [-DFLAGS=<flags>]
#       -P precompile.cmake
# Precompiles the slow headers for run.cmake. FOLDER/<name> includes one of them, and GCC reads FOLDER/<name>.gch instead.
# Fails if a header gives a diagnostic or if GCC does not accept the result.
cmake_minimum_required(VERSION 3.25)
set(flags ${FLAGS} -std=c++20 -isystem "${EIGEN}" "-I${ROOT}/include" "-I${ROOT}/tests/compile_pass")
file(REMOVE_RECURSE "${FOLDER}")
file(WRITE "${FOLDER}/empty.cpp" "")
foreach(header tessera/tessera.hpp model_support.hpp)
  get_filename_component(name "${header}" NAME)
  set(file "${FOLDER}/${name}")
  file(WRITE "${file}" "#include <${header}>\n")
  execute_process(COMMAND "${COMPILER}" ${flags} -Wall -Wextra -Wpedantic -x c++-header "${file}" -o "${file}.gch"
                  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0 OR NOT output STREQUAL "")
    message(FATAL_ERROR "${header} does not compile in silence (exit code ${status}):\n${output}")
  endif()
  execute_process(COMMAND "${COMPILER}" ${flags} -fsyntax-only -Wall -Wextra -Winvalid-pch -H -include "${file}"
                          "${FOLDER}/empty.cpp"
                  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(FIND "${output}" "! ${file}.gch\n" place)
  if(NOT status EQUAL 0 OR NOT place EQUAL 0)
    message(FATAL_ERROR "the compiler does not take ${file}.gch (exit code ${status}):\n${output}")
  endif()
endforeach()
