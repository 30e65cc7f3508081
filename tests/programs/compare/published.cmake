# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=compare -DPLAN=plan -DROOT=<source folder> -DWORK=folder -P published.cmake
# Tests published figures: each belongs to a row of its flags file. Also tests their output if no row fits.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")
file(READ "${ROOT}/examples/experiments/published.json" published)
string(JSON count LENGTH "${published}" comparisons)
math(EXPR last "${count} - 1")

# Every published row is a row of the plan of its flags file.
foreach(index RANGE ${last})
  string(JSON name GET "${published}" comparisons ${index} name)
  execute_process(COMMAND "${PLAN}" "@${ROOT}/examples/experiments/${name}.flags" --device cuda --memory 80GB --no-search
                          --json plan.json WORKING_DIRECTORY "${WORK}" OUTPUT_QUIET RESULT_VARIABLE code ERROR_VARIABLE errors)
  if(NOT code MATCHES "^[05]$")
    message(FATAL_ERROR "plan of ${name}: ${code} ${errors}")
  endif()
  file(READ "${WORK}/plan.json" plan)
  set(planned "")
  string(JSON rows LENGTH "${plan}" rows)
  math(EXPR rows "${rows} - 1")
  foreach(row RANGE ${rows})
    string(JSON one GET "${plan}" rows ${row})
    set(text "")
    foreach(key model world sharding precision offload batch sequence)
      field(value "${one}" ${key})
      string(APPEND text "${value} ")
    endforeach()
    list(APPEND planned "${text}")
  endforeach()
  string(JSON rows LENGTH "${published}" comparisons ${index} rows)
  math(EXPR rows "${rows} - 1")
  foreach(row RANGE ${rows})
    string(JSON one GET "${published}" comparisons ${index} rows ${row})
    set(text "")
    foreach(key model ranks sharding precision offload batch sequence)
      field(value "${one}" ${key})
      string(APPEND text "${value} ")
    endforeach()
    if(NOT text IN_LIST planned)
      message(SEND_ERROR "${name}: published ${text}is no row of its flags: ${planned}")
    endif()
  endforeach()
endforeach()

# For rows that do not fit, compare prints the plan in brackets, the published figures, and the impossible ones.
passes(@${ROOT}/examples/experiments/large-models.flags --data text.txt --device cpu --host-memory 64GiB --offloads none,cpu_optimizer
       --json large.json)
foreach(text "published, large-models: ZeRO-2 and ZeRO-3" "zs3, fp16, 8 ranks +3000 +- +680 +- +72 +\\([0-9.]+\\) +- +- +oom +optimal"
        "zs2, fp16, 8 ranks +OOM" "\\(in brackets\\): planned, because the row did not run here" "published on: eight A100 80 GB"
        "here on: [^\n]+, ranks as threads of the processor" "assumed: fp16" "not equal: its tokens/s are batch x sequence"
        "cannot be: zs3, fp16, 8 ranks: 72 GB on each of eight" "not repeated here: 1 of the 4 rows" "rows: 4 oom")
  if(NOT output MATCHES "${text}")
    message(SEND_ERROR "large-models does not print '${text}': ${output}")
  endif()
endforeach()
file(READ "${WORK}/large.json" json)
string(JSON oom GET "${json}" rows 0 published oom)
string(JSON step GET "${json}" rows 1 published figures step_ms)
string(JSON ratios LENGTH "${json}" rows 1 published ratios)
string(JSON kind ERROR_VARIABLE absent TYPE "${json}" rows 2 published)
expect("published of four rows" "ON 680 0" "${oom} ${step} ${ratios}")
if(absent STREQUAL "NOTFOUND")
  message(SEND_ERROR "a row that was not published has figures: ${kind}")
endif()

# A line in the published spelling is compared with published figures too. Rows of another shape are not.
passes(--model "layers=2,heads=2,channels=32" --data text.txt --seq-length 16 --num-steps 1 --warmup-steps 0 --stages 0 --json other.json)
if(NOT output MATCHES "published: no row here has the same model, ranks, recipe, batch and sequence as a row of stage-sweep, stage-sweep-7b")
  message(SEND_ERROR "another shape: ${output}")
endif()
refuses(2 "--published;'stage-swep';'stage-sweep'" ${brief} --published stage-swep)
