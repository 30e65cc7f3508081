# SPDX-License-Identifier: Apache-2.0
# cmake -DCOMPILER=<C++ compiler> -DROOT=<source folder> -DEIGEN=<folder>
#       -DWORK=<folder> -P tier.cmake
# Adds a tier of memory to a copy of the tree, in three files: its row and the place that policies name, the declaration of
# that place, and the offloads that use it. Plans, listings, reports, addresses and names of offloads follow.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${WORK}")
file(COPY "${ROOT}/include/tessera" DESTINATION "${WORK}/include")

include("${CMAKE_CURRENT_LIST_DIR}/edit.cmake")
edit(include/tessera/core/place.hpp "{ device, host, nvme }" "{ device, host, far, nvme }")
edit(include/tessera/core/place.hpp "    {\"nvme\", false," "    {\"far\", true, Tier::far, \"far_optimizer\", \"far\"},\n    {\"nvme\", false,")
edit(include/tessera/core/place.hpp "struct Nvme {" "struct Far {
  static constexpr std::string_view name = \"far\";
  static constexpr Tier offload_tier = Tier::far;
};
struct Nvme {")
edit(include/tessera/fwd.hpp "struct Nvme;" "struct Nvme;\nstruct Far;")
edit(include/tessera/policy/offload.hpp "detail::list<Offload<None>," "detail::list<Offload<None>, Offload<Optimizer<Far>>, Offload<Optimizer<Far>, Parameters<Far>>,")

execute_process(
  COMMAND ${COMPILER} -std=c++20 -O0 "-I${WORK}/include" -isystem "${EIGEN}" "${CMAKE_CURRENT_LIST_DIR}/tier.cpp" -pthread
          -o "${WORK}/tier"
  RESULT_VARIABLE status ERROR_VARIABLE text)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "does not compile:\n${text}")
endif()
function(shows offload)
  execute_process(COMMAND "${WORK}/tier" ${offload} RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
  foreach(wanted ${ARGN})
    string(FIND "${text}" "${wanted}" position)
    if(NOT status EQUAL 0 OR position EQUAL -1)
      message(SEND_ERROR "${offload}: status ${status}, should be 0 with: ${wanted}\n${text}")
    endif()
  endforeach()
  if(text MATCHES "no address")
    message(SEND_ERROR "${offload}: a buffer has no address:\n${text}")
  endif()
endfunction()
shows(far_optimizer "none far_optimizer far cpu_optimizer" " (far)" "far: some bytes" "nvme: no bytes" "mistake: ''"
      "footprint: all tiers")
shows(far " (far)" "far: some bytes" "mistake: ''" "footprint: all tiers")
shows(cpu_full "far: no bytes" "mistake: ''" "footprint: all tiers")
shows(nvme " (far)" " (nvme)" "mistake: ''" "footprint: all tiers")
