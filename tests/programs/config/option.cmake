# SPDX-License-Identifier: Apache-2.0
# cmake -DCOMPILER=<C++ compiler> -DROOT=<source folder> -DEIGEN=<folder>
#       -DWORK=<folder> -P option.cmake
# Adds an option to a copy of the tree, in two files: its member and its row. The flag, its help text and range, the
# settings in results and the check of trainers follow.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${WORK}")
file(COPY "${ROOT}/include/tessera/train" DESTINATION "${WORK}/include/tessera")

include("${CMAKE_CURRENT_LIST_DIR}/edit.cmake")
edit(include/tessera/train/options.hpp "  double clip = 0.0;" "  double trial = 0.5;\n  double clip = 0.0;")
edit(include/tessera/train/option_table.hpp "    {TESSERA_OPTION(clip)," "    {TESSERA_OPTION(trial), .group = OptionGroup::optimizer, .max = 2,
     .flags = \"--trial,--try\", .key = \"trial\", .help = \"an option of a test\"},\n    {TESSERA_OPTION(clip),")

execute_process(
  COMMAND ${COMPILER} -std=c++20 -O0 "-I${WORK}/include" "-I${ROOT}/include" "-I${ROOT}/examples/programs" -isystem "${EIGEN}"
          "${CMAKE_CURRENT_LIST_DIR}/option.cpp" "${ROOT}/examples/programs/cli/option_flags.cpp" "${ROOT}/examples/programs/cli/command_line.cpp" -pthread
          -o "${WORK}/option"
  RESULT_VARIABLE status ERROR_VARIABLE text)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "does not compile:\n${text}")
endif()
function(shows wanted_status wanted)
  execute_process(COMMAND "${WORK}/option" ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
  string(FIND "${text}" "${wanted}" position)
  if(NOT status EQUAL wanted_status OR position EQUAL -1)
    message(SEND_ERROR "${ARGN}: status ${status}, should be ${wanted_status} with: ${wanted}\n${text}")
  endif()
endfunction()
shows(0 "--trial,--try X [0.5]           an option of a test" --help)
shows(0 "\"weight_decay\":0.01,\"trial\":0.5,\"clip\":0.0")
shows(0 "\"trial\":1.25" --try 1.25)
shows(2 "--trial is 3; give a number from 0 up to 2" --trial 3)
