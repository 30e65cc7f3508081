# SPDX-License-Identifier: Apache-2.0
# Installs a relocatable package: the headers, the targets, and with TESSERA_INSTALL_RECIPES the compiled recipes.
include_guard(DIRECTORY)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(tessera_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/tessera")
if(NOT TESSERA_INSTALL_RECIPES)
  set(tessera_cmake_dir "${CMAKE_INSTALL_DATADIR}/cmake/tessera")  # nothing of it depends on the architecture
endif()

install(TARGETS tessera EXPORT tesseraTargets
  FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT tesseraTargets NAMESPACE tessera:: DESTINATION "${tessera_cmake_dir}")

set(tessera_version_options COMPATIBILITY SameMinorVersion)
if(TESSERA_INSTALL_RECIPES AND TARGET tessera_recipes)
  install(TARGETS tessera_recipes EXPORT tesseraRecipesTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  install(EXPORT tesseraRecipesTargets NAMESPACE tessera:: DESTINATION "${tessera_cmake_dir}")
else()
  list(APPEND tessera_version_options ARCH_INDEPENDENT)
endif()

# The components that compiled recipes need in addition to tessera::tessera: cuda, or cuda and nccl.
set(tessera_recipes_components "")
if(TESSERA_INSTALL_RECIPES AND TARGET tessera_cuda)
  list(APPEND tessera_recipes_components cuda)
  if(TARGET tessera_nccl)
    list(APPEND tessera_recipes_components nccl)
  endif()
endif()
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/tesseraConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/tesseraConfig.cmake"
  INSTALL_DESTINATION "${tessera_cmake_dir}" NO_SET_AND_CHECK_MACRO
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake"
  VERSION ${PROJECT_VERSION} ${tessera_version_options})
install(FILES "${PROJECT_BINARY_DIR}/tesseraConfig.cmake" "${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/TesseraCudaTargets.cmake" "${PROJECT_SOURCE_DIR}/cmake/TesseraCudaDialect.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindNCCL.cmake" "${PROJECT_SOURCE_DIR}/cmake/TesseraCudnn.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/TesseraUring.cmake" "${PROJECT_SOURCE_DIR}/cmake/TesseraMpi.cmake"
  DESTINATION "${tessera_cmake_dir}")
install(FILES "${PROJECT_SOURCE_DIR}/include/tessera/io/uring.cpp"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/tessera/io")
install(FILES "${PROJECT_SOURCE_DIR}/include/tessera/comm/mpi.cpp"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/tessera/comm")
install(FILES "${PROJECT_SOURCE_DIR}/include/tessera/backend/cuda/attention/attention_cudnn.cpp"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/tessera/backend/cuda/attention")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/tessera")
