# SPDX-License-Identifier: Apache-2.0
# tessera_find_mpi(target folder missing): defines tessera::mpi if an MPI library is found. Otherwise `missing` states what
# is missing and what to do. The build and the installed package share this function. MPI_C_COMPILER or MPI_HOME selects one
# of several MPI libraries, as for CMake's FindMPI.
#
# A target that links tessera::mpi compiles one more source of `folder`, which registers MPI. In a static library the linker
# would drop that source.
include_guard(DIRECTORY)

function(tessera_find_mpi target folder missing)
  # The library calls MPI's C functions. FindMPI finds them only for an enabled language.
  set(language C)
  if(NOT CMAKE_C_COMPILER_LOADED)
    set(language CXX)
    set(MPI_CXX_SKIP_MPICXX TRUE)
    if(MPI_C_COMPILER AND NOT MPI_CXX_COMPILER)
      set(MPI_CXX_COMPILER "${MPI_C_COMPILER}")
    endif()
  endif()
  find_package(MPI 3.0 QUIET COMPONENTS ${language})
  if(NOT TARGET MPI::MPI_${language})
    set(${missing} "no MPI library 3.0 or newer was found: apt-get install libopenmpi-dev openmpi-bin, or libmpich-dev mpich, or give the library's mpicc as -DMPI_C_COMPILER=FILE" PARENT_SCOPE)
    return()
  endif()
  set(${missing} "" PARENT_SCOPE)
  if(target MATCHES "::")
    add_library(${target} INTERFACE IMPORTED)
  else()
    add_library(${target} INTERFACE)
  endif()
  target_link_libraries(${target} INTERFACE tessera::tessera MPI::MPI_${language})
  target_sources(${target} INTERFACE "${folder}/tessera/comm/mpi.cpp")
endfunction()
