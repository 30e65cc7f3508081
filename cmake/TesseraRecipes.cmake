# SPDX-License-Identifier: Apache-2.0
# tessera::recipes: every registered recipe, compiled once.
include_guard(DIRECTORY)

add_library(tessera_recipes STATIC ${tessera_recipe_sources})
add_library(tessera::recipes ALIAS tessera_recipes)
set_target_properties(tessera_recipes PROPERTIES EXPORT_NAME recipes POSITION_INDEPENDENT_CODE ON)
target_link_libraries(tessera_recipes
  PUBLIC tessera::tessera $<BUILD_INTERFACE:tessera_native>
  PRIVATE $<BUILD_INTERFACE:tessera_dev_flags> $<BUILD_INTERFACE:tessera_io_libraries>)
if(NOT (TESSERA_BUILD_RECIPES OR TESSERA_INSTALL_RECIPES))
  set_target_properties(tessera_recipes PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
