# SPDX-License-Identifier: Apache-2.0
# tessera_find_uring(target folder): tessera::uring where liburing is found, the same in the build and in the installed
# package. Who links it compiles one source of `folder` more, which registers the engine: a library would leave it out.
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
