# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=train -DRESULTS=<folder of results of older versions> -DWORK=folder -P versions.cmake
# train reads results of every older version and requests the settings that they lack. Results of a newer version are refused.
include("${CMAKE_CURRENT_LIST_DIR}/../train/support.cmake")
string(REPEAT "The quick brown fox jumps over the lazy dog.\n" 20 text)
file(WRITE "${WORK}/text.txt" "${text}")

file(GLOB files "${RESULTS}/*.json")
list(LENGTH files count)
expect("older files" 3 "${count}")
foreach(file IN LISTS files)
  get_filename_component(name "${file}" NAME)
  file(READ "${file}" json)
  string(JSON version GET "${json}" schema_version)
  if(NOT name MATCHES "^version-${version}[-.]")
    message(SEND_ERROR "${name} is of version ${version}")
  endif()
  set(data "")
  if(version EQUAL 1)  # version 1 recorded no paths
    refuses(3 "${name}: was written by an older program;did not record the flag --data of its command; give --data too;--data text.txt" --from "${file}" --best)
    set(data --data text.txt)
  endif()
  passes(--from "${file}" --row zs2_fp32_ranks2_bs1_sl16 ${data} --print-config)
  foreach(setting "--model layers=1,heads=1,channels=16" "--ranks 2" "--batch 1" "--sequence 16" "--stage zs2" "--precision fp32"
          "--attention reference" "--reduction ordered" "--steps 4" "--learning-rate 0.001" "--clip 1" "--seed 1" "--data text.txt")
    if(NOT "\n${output}" MATCHES "\n${setting} ")
      message(SEND_ERROR "${name} does not say ${setting}: ${output}")
    endif()
  endforeach()
  passes(--from "${file}" --best ${data} --log steps.jsonl)
  summary(steps.jsonl steps_done steps)
  expect("steps of ${name}" 4 "${steps}")

  # A flag of its command that the file did not record. Rows of the first version also lack the loss scale.
  foreach(flag --loss-scale --vocabulary)
    string(REPLACE " --seq" " ${flag} 1 --seq" more "${json}")
    file(WRITE "${WORK}/more.json" "${more}")
    if(name STREQUAL "version-1.json" OR (version EQUAL 1 AND flag STREQUAL "--vocabulary"))
      refuses(3 "more.json: was written by an older program;the flag ${flag} of its command; give ${flag} too" --from more.json --best ${data})
    else()
      passes(--from more.json --best ${data} --print-config)
    endif()
  endforeach()

  string(REPLACE "\"schema_version\": ${version}," "\"schema_version\": 4," json "${json}")
  file(WRITE "${WORK}/newer.json" "${json}")
  refuses(4 "newer.json: has schema_version 4, but this program reads up to 3; use a newer program" --from newer.json --best)
endforeach()
