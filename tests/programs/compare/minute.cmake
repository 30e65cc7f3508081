# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=compare -DWORK=folder -P minute.cmake
# Tests a complete one-minute run: its recipes, its duration, and the command lines that it suggests.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")

string(TIMESTAMP began "%s")
passes(--data text.txt --seed 7)
string(TIMESTAMP ended "%s")
math(EXPR seconds "${ended} - ${began}")
if(seconds GREATER 75)
  message(SEND_ERROR "a first minute took ${seconds} s")
endif()
foreach(text "^measuring zs0_bf16_ranks4_bs4_sl128 to find out how many recipes fit into a minute\ntrains [2-8] recipes for [125] . [0-9]+ steps each: about "
        "\\[1/[2-8]\\] zs0_bf16_ranks4_bs4_sl128: ok" "\nleft out of this minute: [^\n]*97 of all 105 recipes\n"
        "\nnext:\n  [^\n]*compare --data text.txt --seed 7 --full +all 105 recipes, about [^\n]*\n  xdg-open results/report.html [^\n]*\n  [^\n]*compare --model gpt2 --batch-size 4 --stages 0 1 2 3 --num-steps 2 --warmup-steps 1 ")
  if(NOT output MATCHES "${text}")
    message(SEND_ERROR "a first minute does not say '${text}': ${output}")
  endif()
endforeach()
file(READ "${WORK}/results/compare.json" json)
string(JSON count LENGTH "${json}" rows)
field(status "${json}" rows 0 status)
if(count LESS 2 OR count GREATER 8 OR NOT status STREQUAL "ok" OR NOT EXISTS "${WORK}/results/report.html")
  message(SEND_ERROR "a first minute left ${count} rows, the first ${status}")
endif()
