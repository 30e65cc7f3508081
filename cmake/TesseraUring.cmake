# SPDX-License-Identifier: Apache-2.0
# tessera_find_uring(target folder): defines tessera::uring if liburing is found. The build and the installed package share
# this function. A target that links tessera::uring compiles one more source of `folder`, which registers the engine. In a
# static library the linker would drop that source.
include_guard(DIRECTORY)

function(tessera_find_uring target folder)
  find_path(LIBURING_INCLUDE_DIR liburing.h)
  find_library(LIBURING_LIBRARY uring)
  mark_as_advanced(LIBURING_INCLUDE_DIR LIBURING_LIBRARY)
  if(NOT LIBURING_INCLUDE_DIR OR NOT LIBURING_LIBRARY)
    return()
  endif()
  if(target MATCHES "::")
    add_library(${target} INTERFACE IMPORTED)
  else()
    add_library(${target} INTERFACE)
  endif()
  target_link_libraries(${target} INTERFACE tessera::tessera "${LIBURING_LIBRARY}")
  target_include_directories(${target} SYSTEM INTERFACE "${LIBURING_INCLUDE_DIR}")
  target_sources(${target} INTERFACE "${folder}/tessera/io/uring.cpp")
endfunction()
