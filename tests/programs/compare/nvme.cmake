# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=compare -DTRAIN=train -DWORK=folder -P nvme.cmake
# State on NVMe: where its files lie and that none stays, what rows say of it, what is refused before step 1. And what
# compare runs of all recipes unless it is told otherwise.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")
file(MAKE_DIRECTORY "${WORK}/temporary" "${WORK}/disk")
set(ENV{TMPDIR} "${WORK}/temporary")

# empty(folder): nothing is in it.
function(empty folder)
  file(GLOB found "${WORK}/${folder}/*")
  if(found)
    message(SEND_ERROR "left in ${folder}: ${found}")
  endif()
endfunction()

# A fresh folder, which is removed, as is that of a killed run; a folder of somebody else's stays.
file(MAKE_DIRECTORY "${WORK}/temporary/tessera-nvme-killed")
file(WRITE "${WORK}/temporary/tessera-nvme-killed/tessera-scratch-1-0-0.bin" "left")
set(offloads none nvme_optimizer nvme_parameters nvme infinity)
passes(${brief} --ranks 2 --stages dp,3 --precisions bf16 --strategies ${offloads} --json rows.json)
empty(temporary)
if(NOT output MATCHES "nvme path +${WORK}/temporary/tessera-nvme-" OR NOT output MATCHES "all 10 rows equal to the bit")
  message(SEND_ERROR "rows of NVMe: ${output}")
endif()
file(READ "${WORK}/rows.json" json)
foreach(index RANGE 9)
  foreach(key experiment offload status nvme_mb planned_nvme_mb nvme_read_mb nvme_write_mb nvme_engine)
    field(${key} "${json}" rows ${index} ${key})
  endforeach()
  expect("status of ${experiment}" ok "${status}")
  if(offload STREQUAL "none")
    expect("${experiment} on NVMe" "" "${nvme_mb}${planned_nvme_mb}${nvme_read_mb}${nvme_write_mb}${nvme_engine}")
    continue()
  endif()
  expect("bytes of ${experiment} on NVMe" "${planned_nvme_mb}" "${nvme_mb}")
  if(NOT nvme_read_mb GREATER 0 OR NOT nvme_write_mb GREATER 0)
    message(SEND_ERROR "${experiment} reads ${nvme_read_mb} and writes ${nvme_write_mb} MB a step")
  endif()
  if(NOT nvme_engine MATCHES "^(io_uring|threads: [^,]+), [0-9]+ requests of [0-9]+ KiB(, buffered: no O_DIRECT here)?$")
    message(SEND_ERROR "${experiment} says that '${nvme_engine}' reads and writes")
  endif()
endforeach()

# A folder of one's own.
passes(${brief} --ranks 2 --stages 1 --precisions fp32 --offloads nvme --nvme-path disk --json own.json)
empty(disk)
execute_process(COMMAND "${TRAIN}" ${small} --data text.txt --steps 3 --ranks 2 --stage 3 --offload infinity --nvme-path disk --log log.jsonl
                WORKING_DIRECTORY "${WORK}" OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE code)
expect("exit code of train" "0 " "${code} ${errors}")
if(NOT output MATCHES "nvme path +disk +flag" OR NOT output MATCHES "memory of rank 0: [^\n]*, on NVMe [0-9.]+ [KMG]?i?B \\(")
  message(SEND_ERROR "train with state on NVMe: ${output}")
endif()
empty(disk)
empty(temporary)

# What a killed run has left there goes before its room is counted: also where no row is made then.
file(WRITE "${WORK}/disk/tessera-scratch-999999999-0-0.bin" "left")
run(${brief} --ranks 2 --stages 0 --precisions fp32 --offloads nvme --nvme-path disk --host-memory 100KB --json small.json)
expect("exit code where nothing fits" 0 "${code}")
empty(disk)

# Refused before step 1. A file system of the kernel takes no files, also from root.
refuses(2 "--nvme-path absent is not a folder" ${brief} --offloads nvme --nvme-path absent)
refuses(2 "--nvme-path text.txt is not a folder" ${brief} --offloads none --nvme-path text.txt)
refuses(1 "--nvme-path /proc: cannot create files" ${brief} --offloads nvme --nvme-path /proc)
set(ENV{TMPDIR} "${WORK}/no")
refuses(1 "TMPDIR;${WORK}/no" ${brief} --offloads nvme)
set(ENV{TMPDIR} "${WORK}/temporary")

# What the host may hold.
run(${brief} --ranks 2 --stages 0 --precisions fp32 --offloads none,cpu_optimizer --host-memory 100KB --json small.json)
expect("exit code where nothing fits" 0 "${code}")
file(READ "${WORK}/small.json" json)
field(status "${json}" rows 1 status)
field(reason "${json}" rows 1 reason)
if(NOT "${status} ${reason}" MATCHES "^oom out of memory: 2 ranks plan .* and 100000 B are available")
  message(SEND_ERROR "--host-memory: ${status} ${reason}")
endif()
execute_process(COMMAND "${TRAIN}" ${small} --data text.txt --host-memory 100KB WORKING_DIRECTORY "${WORK}" OUTPUT_QUIET
                ERROR_VARIABLE errors RESULT_VARIABLE code)
if(NOT code EQUAL 5 OR NOT errors MATCHES "100000 B are available")
  message(SEND_ERROR "train --host-memory ended with ${code}: ${errors}")
endif()

# Without lists: fewer rows than there are, and each sharding meets each precision and each offload, each offload each precision.
set(one --model "layers=1,heads=1,channels=8" --sequence 16 --batch 1 --ranks 1 --data text.txt --steps 1 --warmup 0)

# met(file rows pairs): how many rows a file has, and which two choices meet in one of them.
function(met file rows pairs)
  file(READ "${WORK}/${file}" json)
  string(JSON count LENGTH "${json}" rows)
  set(found "")
  math(EXPR last "${count} - 1")
  foreach(index RANGE ${last})
    foreach(key sharding precision offload)
      field(${key} "${json}" rows ${index} ${key})
    endforeach()
    list(APPEND found "${sharding}/${precision}" "${sharding}/${offload}" "${precision}/${offload}")
  endforeach()
  list(REMOVE_DUPLICATES found)
  list(SORT found)
  set(${rows} ${count} PARENT_SCOPE)
  set(${pairs} "${found}" PARENT_SCOPE)
endfunction()

passes(${one} --full --json all.json)
met(all.json rows_of_all pairs_of_all)
if(NOT output MATCHES "rows: ${rows_of_all} ok\n")
  message(SEND_ERROR "--full: ${output}")
endif()
passes(${one} --json some.json)
met(some.json rows pairs)
if(NOT rows LESS rows_of_all OR NOT output MATCHES "rows +${rows} of ${rows_of_all}: [^\n]*--full")
  message(SEND_ERROR "what is left out: ${output}")
endif()
expect("pairs of sharding, precision and offload" "${pairs_of_all}" "${pairs}")
empty(temporary)
