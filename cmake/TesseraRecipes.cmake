# SPDX-License-Identifier: Apache-2.0
# Defines tessera::recipes, a static library with all registered recipes.
include_guard(DIRECTORY)

if(TESSERA_CUDA)
  file(GLOB tessera_cuda_recipe_sources CONFIGURE_DEPENDS include/tessera/recipes/*.cu)
  set(tessera_other_ranks gpus)
  if(TARGET tessera_nccl)
    set(tessera_other_ranks without_nccl)
  endif()
  list(FILTER tessera_cuda_recipe_sources EXCLUDE REGEX "/${tessera_other_ranks}\\.cu$")
  list(FILTER tessera_recipe_sources EXCLUDE REGEX "/without_cuda\\.cpp$")
  list(APPEND tessera_recipe_sources ${tessera_cuda_recipe_sources})
endif()
add_library(tessera_recipes STATIC ${tessera_recipe_sources})
add_library(tessera::recipes ALIAS tessera_recipes)
set(families gpt2 llama opt)
list(TRANSFORM families PREPEND "${PROJECT_SOURCE_DIR}/include/tessera/recipes/")
list(TRANSFORM families APPEND .cpp)
tessera_compile_together(tessera_recipes ${families})
set_target_properties(tessera_recipes PROPERTIES EXPORT_NAME recipes POSITION_INDEPENDENT_CODE ON)
target_link_libraries(tessera_recipes
  PUBLIC tessera::tessera $<BUILD_INTERFACE:tessera_native>
  PRIVATE $<BUILD_INTERFACE:tessera_dev_flags> $<BUILD_INTERFACE:tessera_io_libraries>)
# Programs that link it use its engines and operations and do not compile their own.
target_compile_definitions(tessera_recipes INTERFACE TESSERA_RECIPES_LINKED)
if(TESSERA_CUDA)
  target_compile_definitions(tessera_recipes PUBLIC TESSERA_RECIPES_CUDA)  # models are compiled for GPUs too
  # The installed package creates these targets itself and links them.
  target_link_libraries(tessera_recipes PUBLIC $<BUILD_INTERFACE:tessera_cuda>)
  if(TARGET tessera_nccl)
    target_link_libraries(tessera_recipes PUBLIC $<BUILD_INTERFACE:tessera_nccl>)
  endif()
endif()
if(NOT (TESSERA_BUILD_RECIPES OR TESSERA_INSTALL_RECIPES))
  set_target_properties(tessera_recipes PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
