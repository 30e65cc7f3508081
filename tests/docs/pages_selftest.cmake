# SPDX-License-Identifier: Apache-2.0
# cmake -DROOT=<repository> -DWORK=<folder> -P pages_selftest.cmake
# A clean page passes. Each planted mistake is refused with a message that names it.
cmake_minimum_required(VERSION 3.25)

function(judge text wanted)
  file(REMOVE_RECURSE "${WORK}")
  file(WRITE "${WORK}/troubleshooting.md" "${text}")
  execute_process(COMMAND ${CMAKE_COMMAND} "-DROOT=${ROOT}" "-DPAGES=${WORK}" -P "${CMAKE_CURRENT_LIST_DIR}/pages.cmake"
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(wanted STREQUAL "" AND NOT status EQUAL 0)
    message(FATAL_ERROR "a clean page is refused:\n${output}")
  elseif(NOT wanted STREQUAL "" AND (status EQUAL 0 OR NOT output MATCHES "${wanted}"))
    message(FATAL_ERROR "a page is not refused with '${wanted}':\n${text}\nThe check says:\n${output}")
  endif()
endfunction()

set(version "include/tessera/version.hpp")
judge("A page about `${version}`.\n```cpp from=${version}\ninline   constexpr char\n// ...\nnamespace tessera {\ninline namespace v0\n```\n
[itself](troubleshooting.md)\n\n| file | what |\n|---|---|\n| `${version}` | `namespace tessera`, in `include/tessera` |\n\n| text | cause |\n|---|---|\n| `a Comm needs a transport, but got ...` | none |\n" "")
judge("```cpp from=${version}\ninline constexpr char verse[];\n```\n" "does not hold")
judge("```cpp from=include/tessera/verse.hpp\n```\n" "quotes include/tessera/verse.hpp")
judge("[nowhere](nowhere.md)\n" "links to nowhere.md")
judge("See `include/tessera/verse.hpp`.\n" "names include/tessera/verse.hpp")
judge("| text |\n|---|\n| `a Comm wants ... transport` |\n" "no source says 'a Comm wants '")
judge("| file |\n|---|\n| `${version}` | `verse_of` |\n" "version.hpp does not hold verse_of")
