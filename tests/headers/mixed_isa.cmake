# SPDX-License-Identifier: Apache-2.0
# Translation units of different instruction sets must not link into one program; equal ones must.
# cmake -DCOMPILER=... -DINCLUDE=... -DFOLDER=... -P mixed_isa.cmake
file(REMOVE_RECURSE "${FOLDER}")
file(MAKE_DIRECTORY "${FOLDER}")
file(WRITE "${FOLDER}/one.cpp" "#include <tessera/config.hpp>\nint one() { return 0; }\n")
file(WRITE "${FOLDER}/two.cpp" "#include <tessera/config.hpp>\nint one();\nint main() { return one(); }\n")

function(compile name flags)
  execute_process(COMMAND "${COMPILER}" -std=c++20 ${flags} "-I${INCLUDE}" -c "${FOLDER}/${name}.cpp" -o "${FOLDER}/${ARGV2}.o"
                  RESULT_VARIABLE code ERROR_VARIABLE errors)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "compiling ${name}.cpp with '${flags}' failed: ${errors}")
  endif()
endfunction()

compile(one "-msse2" one)
compile(two "-msse2" same)
compile(two "-mavx2" other)

execute_process(COMMAND "${COMPILER}" "${FOLDER}/one.o" "${FOLDER}/same.o" -o "${FOLDER}/same" RESULT_VARIABLE code
                ERROR_VARIABLE errors)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "two units of one instruction set do not link: ${errors}")
endif()
execute_process(COMMAND "${FOLDER}/same" RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "the program of two units exits with ${code}")
endif()
execute_process(COMMAND "${COMPILER}" "${FOLDER}/one.o" "${FOLDER}/other.o" -o "${FOLDER}/other" RESULT_VARIABLE code
                ERROR_VARIABLE errors)
if(code EQUAL 0)
  message(FATAL_ERROR "units of two instruction sets link into one program")
endif()
if(NOT errors MATCHES "tessera_isa_avx2")
  message(FATAL_ERROR "the linker does not name the instruction set: ${errors}")
endif()
