# SPDX-License-Identifier: Apache-2.0
# Provides NCCL::nccl. Uses NCCL's CMake package if it is installed. Otherwise searches for the header and the library in
# NCCL_ROOT and NCCL_HOME (CMake or environment variables), in the folders of the CUDA toolkit, and in the system's folders.
# Sets NCCL_FOUND and NCCL_VERSION, and for a header and library also NCCL_INCLUDE_DIR and NCCL_LIBRARY.
if(NOT TARGET NCCL::nccl)
  find_package(NCCL CONFIG QUIET)
endif()

if(NOT TARGET NCCL::nccl)
  set(nccl_hints ${NCCL_ROOT} $ENV{NCCL_ROOT} ${NCCL_HOME} $ENV{NCCL_HOME})
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${nccl_hints} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  # The Python packages and some container images have only the versioned library.
  find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${nccl_hints} ${CUDAToolkit_LIBRARY_DIR}
               PATH_SUFFIXES lib lib64 lib/x86_64-linux-gnu lib/aarch64-linux-gnu)
  mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
endif()

if(NCCL_INCLUDE_DIR AND EXISTS "${NCCL_INCLUDE_DIR}/nccl.h")
  file(STRINGS "${NCCL_INCLUDE_DIR}/nccl.h" nccl_lines REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) +[0-9]+")
  set(nccl_numbers "")
  foreach(part MAJOR MINOR PATCH)
    string(REGEX MATCH "NCCL_${part} +([0-9]+)" nccl_match "${nccl_lines}")
    list(APPEND nccl_numbers "${CMAKE_MATCH_1}")
  endforeach()
  list(JOIN nccl_numbers . NCCL_VERSION)
endif()

include(FindPackageHandleStandardArgs)
if(TARGET NCCL::nccl AND NOT NCCL_LIBRARY)
  find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_DIR VERSION_VAR NCCL_VERSION HANDLE_VERSION_RANGE)
else()
  find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION
                                    HANDLE_VERSION_RANGE)
endif()

if(NCCL_FOUND AND NOT TARGET NCCL::nccl)
  add_library(NCCL::nccl UNKNOWN IMPORTED)
  set_target_properties(NCCL::nccl PROPERTIES IMPORTED_LOCATION "${NCCL_LIBRARY}"
                                              INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR}")
endif()
