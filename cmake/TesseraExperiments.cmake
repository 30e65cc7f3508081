# SPDX-License-Identifier: Apache-2.0
# tessera_experiments provides the recipes of examples/experiments as types (experiments.hpp). Writes experiment_flags.hpp,
# which contains the flags of each file without its comments.
include_guard(GLOBAL)
file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/experiments/*.flags")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
set(text "#pragma once\n\n#include <type_traits>\n\nnamespace experiments {\n\n")
set(names "")
foreach(file IN LISTS files)
  get_filename_component(name "${file}" NAME_WE)
  string(MAKE_C_IDENTIFIER "${name}" identifier)
  list(APPEND names "${identifier}")
  file(STRINGS "${file}" lines REGEX "^[^#]")
  list(JOIN lines " " flags)
  string(APPEND text "struct ${identifier} {
  static constexpr char name[] = \"${name}\";
  static constexpr char flags[] = R\"flags(${flags} )flags\";
};
")
endforeach()
list(TRANSFORM names REPLACE "(.+)" "visit(std::type_identity<\\1>{})" OUTPUT_VARIABLE calls)
list(JOIN calls ", " calls)
string(APPEND text "
/// Every experiment.
struct all {
  template <class Visit>
  static void for_each(Visit&& visit) {
    (${calls});
  }
};

}  // namespace experiments
")
set(folder "${PROJECT_BINARY_DIR}/generated/experiments")
file(CONFIGURE OUTPUT "${folder}/experiment_flags.hpp" CONTENT "${text}" @ONLY)
add_library(tessera_experiments INTERFACE)
target_include_directories(tessera_experiments INTERFACE "${PROJECT_SOURCE_DIR}/examples" "${folder}")
