# SPDX-License-Identifier: Apache-2.0
# Lists the sources that all programs share, and writes three of them:
#   tessera_shared_sources   the sources in the folders that programs share
#   tessera_embedded_files   machine times and published comparisons as strings
#   tessera_build_facts      the commit and the compiler flags; a separate file, since it changes most often
include_guard(DIRECTORY)

set(tessera_shared_sources "")
foreach(folder cli config machine prediction results trace workload)
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/programs/${folder}/*.cpp")
  list(APPEND tessera_shared_sources ${sources})
endforeach()

# The commit and the compiler flags, which results state. Without git the hash is empty.
set(tessera_build_facts "${PROJECT_BINARY_DIR}/generated/build_facts.cpp")
string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
set(compile_flags "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}}")
find_program(TESSERA_GIT git)
mark_as_advanced(TESSERA_GIT)
set(git_hash "")
if(TESSERA_GIT)
  execute_process(COMMAND "${TESSERA_GIT}" -C "${PROJECT_SOURCE_DIR}" rev-parse --short=12 HEAD
                  OUTPUT_VARIABLE git_hash OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(CONFIGURE OUTPUT "${tessera_build_facts}" CONTENT
"#include \"machine/build_facts.hpp\"
namespace programs {
namespace cli {
char const* const git_hash = \"@git_hash@\";
char const* const compile_flags = R\"flags(@compile_flags@)flags\";
}  // namespace cli
}  // namespace programs
" @ONLY)

# Embeds examples/machines and examples/experiments/published.json, so that the programs do not read them at run time.
file(GLOB machines CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/machines/*.json")  # for --machine NAME
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${machines})
set(machine_list "")
foreach(machine IN LISTS machines)
  get_filename_component(machine_name "${machine}" NAME_WE)
  file(READ "${machine}" machine_text)
  string(APPEND machine_list "    {\"${machine_name}\", R\"times(${machine_text})times\"},\n")
endforeach()
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/generated/machine_files.cpp" CONTENT
"#include \"prediction/machine_files.hpp\"
#ifdef __clang__
#pragma clang diagnostic ignored \"-Woverlength-strings\"
#endif
namespace programs {
namespace cli {
namespace {
constexpr MachineFile known_machine_files[] = {
@machine_list@};
}  // namespace
std::span<MachineFile const> machine_files() { return known_machine_files; }
}  // namespace cli
}  // namespace programs
" @ONLY)
set(published "${PROJECT_SOURCE_DIR}/examples/experiments/published.json")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${published}")
file(READ "${published}" published)
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/generated/published_json.cpp" CONTENT
"#ifdef __clang__
#pragma clang diagnostic ignored \"-Woverlength-strings\"
#endif
namespace programs {
namespace cli {
extern char const* const published_json;
char const* const published_json = R\"published(@published@)published\";
}  // namespace cli
}  // namespace programs
" @ONLY)
set(tessera_embedded_files "${PROJECT_BINARY_DIR}/generated/machine_files.cpp" "${PROJECT_BINARY_DIR}/generated/published_json.cpp")
