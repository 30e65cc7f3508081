# SPDX-License-Identifier: Apache-2.0
# tessera_find_cudnn(target folder missing): defines tessera::cudnn if cuDNN and cudnn-frontend are found. Otherwise
# `missing` states what is missing and what to do. The build and the installed package share this function.
#
# A target that links tessera::cudnn compiles one more source of `folder`, which registers the attention. In a static
# library the linker would drop that source.
#
# Searches CUDNN_ROOT and CUDNN_FRONTEND_ROOT (CMake or environment variables), the folders of the CUDA toolkit, and the
# system's folders. The folder nvidia/cudnn of the Python package nvidia-cudnn-cu13 and the site-packages folder of
# nvidia-cudnn-frontend also work.
include_guard(DIRECTORY)

# Reads MAJOR.MINOR from a header with lines #define PREFIX_MAJOR and #define PREFIX_MINOR.
function(tessera_version_in header prefix result)
  set(numbers "")
  file(STRINGS "${header}" lines REGEX "^#define +${prefix}_(MAJOR|MINOR)[A-Z_]* +[0-9]+")
  foreach(part MAJOR MINOR)
    string(REGEX MATCH "${prefix}_${part}[A-Z_]* +([0-9]+)" found "${lines}")
    list(APPEND numbers "${CMAKE_MATCH_1}")
  endforeach()
  list(JOIN numbers . version)
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

function(tessera_find_cudnn target folder missing)
  set(hints ${CUDNN_ROOT} $ENV{CUDNN_ROOT})
  find_path(CUDNN_INCLUDE_DIR cudnn_version.h HINTS ${hints} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  # The Python packages and some container images have only the versioned library.
  find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${hints} ${CUDAToolkit_LIBRARY_DIR}
               PATH_SUFFIXES lib lib64 lib/x86_64-linux-gnu lib/aarch64-linux-gnu)
  find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS ${CUDNN_FRONTEND_ROOT} $ENV{CUDNN_FRONTEND_ROOT} ${hints}
            PATH_SUFFIXES include)
  mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_LIBRARY CUDNN_FRONTEND_INCLUDE_DIR)
  set(reason "")
  if(NOT CUDNN_INCLUDE_DIR OR NOT CUDNN_LIBRARY)
    set(reason "cuDNN (cudnn_version.h and libcudnn.so.9) was not found: apt-get install cudnn9-cuda-13, or pip install nvidia-cudnn-cu13 and give its folder nvidia/cudnn as CUDNN_ROOT")
  elseif(NOT CUDNN_FRONTEND_INCLUDE_DIR)
    set(reason "cudnn-frontend's headers (cudnn_frontend.h) were not found: pip install nvidia-cudnn-frontend and give the folder above its include as CUDNN_FRONTEND_ROOT, or a checkout of https://github.com/NVIDIA/cudnn-frontend")
  elseif(NOT TARGET CUDA::nvrtc)
    set(reason "NVRTC, which cudnn-frontend calls, is not in the CUDA toolkit: apt-get install cuda-nvrtc-dev-13-0")
  else()
    tessera_version_in("${CUDNN_INCLUDE_DIR}/cudnn_version.h" CUDNN cudnn)
    tessera_version_in("${CUDNN_FRONTEND_INCLUDE_DIR}/cudnn_frontend_version.h" CUDNN_FRONTEND frontend)
    if(cudnn VERSION_LESS 9.16)
      set(reason "cuDNN in ${CUDNN_INCLUDE_DIR} is ${cudnn}, and 9.16 or newer is needed")
    elseif(frontend VERSION_LESS 1.13)
      set(reason "cudnn-frontend in ${CUDNN_FRONTEND_INCLUDE_DIR} is ${frontend}, and 1.13 or newer is needed")
    endif()
  endif()
  set(${missing} "${reason}" PARENT_SCOPE)
  if(reason)
    return()
  endif()
  if(target MATCHES "::")
    add_library(${target} INTERFACE IMPORTED)
  else()
    add_library(${target} INTERFACE)
  endif()
  target_link_libraries(${target} INTERFACE tessera::cuda "${CUDNN_LIBRARY}" CUDA::nvrtc)
  target_include_directories(${target} SYSTEM INTERFACE "${CUDNN_INCLUDE_DIR}" "${CUDNN_FRONTEND_INCLUDE_DIR}"
                             ${CUDAToolkit_INCLUDE_DIRS})
  target_sources(${target} INTERFACE "${folder}/tessera/backend/cuda/attention/attention_cudnn.cpp")
endfunction()
