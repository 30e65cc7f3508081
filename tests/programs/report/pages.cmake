# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=report -DWORK=folder -P pages.cmake
# Tests the contents of report's pages, figures and tables, and that foreign text cannot inject markup.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")

set(rows "")
foreach(world 1 2)
  foreach(sharding zs0 zs3)
    math(EXPR rate "${world} * 1000")
    row(one ${sharding}_fp32_ranks${world} "\"sharding\": \"${sharding}\", \"world\": ${world}, \"median_tokens_per_sec\": ${rate}, \"predicted_tokens_per_sec\": 1234, \"prediction_error_pct\": -7.5")
    string(APPEND rows "${one},\n")
  endforeach()
endforeach()
row(one zs0_large "\"sharding\": \"zs0\", \"batch\": 8, \"sequence\": 128, \"status\": \"oom\", \"reason\": \"needs 9 GiB\"")
string(APPEND rows "${one}")
file(MAKE_DIRECTORY "${WORK}/here" "${WORK}/there")
document(here/compare.json "compare --stages 0,3" "${rows}")
row(one zs1_fp32 "\"sharding\": \"zs1\", \"median_tokens_per_sec\": 4321.5, \"batch\": 2, \"sequence\": 32, \"capture\": \"graph\"")
row(two zs1_fp32_b8 "\"sharding\": \"zs1\", \"median_tokens_per_sec\": 4000, \"batch\": 8, \"sequence\": 32, \"capture\": \"graph\"")
row(three zs1_fp32_b8_s64 "\"sharding\": \"zs1\", \"median_tokens_per_sec\": 3000, \"batch\": 8, \"sequence\": 64, \"capture\": \"graph\"")
document(there/compare.json "compare --stages 1" "${one}, ${two}, ${three}")
file(WRITE "${WORK}/monitor.json" "{\"schema_version\": 1, \"command\": \"monitor -- train\", \"environment\": {},
  \"columns\": [\"time_s\", \"cpu_util_pct\", \"gpu0_power_w\", \"gpu0_temp_c\"],
  \"samples\": [[0, 10, 100, 40], [1, 90, 600, null], [2, 95, 620, 61]]}")

# A page of several folders and a monitor file. It loads nothing from outside and names its sources.
passes(here there monitor.json --html page.html --title "Two machines")
holds(page.html "<title>Two machines</title>" ">here</td>" ">there</td>" "id='figure-throughput'" "id='figure-scaling'"
      "id='figure-latency'" "id='figure-latency-map'" "id='figure-trade-off'" "id='figure-loss'" "id='figure-communication'"
      "id='figure-memory'" "id='figure-plan'" "id='figure-power'" "id='figure-temperature'" "id='figure-cpu-use'"
      "oom: needs 9 GiB" "train --from here/compare.json --row zs3_fp32_ranks2" "prefers-color-scheme:dark" "@media print"
      "default-src 'none'" "A CPU")
file(READ "${WORK}/page.html" page)
string(REPLACE "xmlns='http://www.w3.org/2000/svg'" "" page "${page}")
if(page MATCHES "(https?:|src=|url\\(|@import|<link|<img|<iframe|fetch\\(|XMLHttp)")
  message(SEND_ERROR "the page refers to something outside: ${CMAKE_MATCH_0}")
endif()
string(REGEX MATCHALL "href='[^#][^']*'" links "${page}")
expect("links out of the page" "" "${links}")
if(NOT output MATCHES "left out Planned memory of the device by category: no plan was given" OR NOT output MATCHES "wrote page.html")
  message(SEND_ERROR "what was left out is not said: ${output}")
endif()
holds(page.html ">predicted" ">prediction off" ">1,234<" ">-7.5<")
lacks(page.html ">capture<")  # only one source has this column

# The page on standard output. Everything else then goes to stderr.
run(here --html -)
expect("exit code" 0 "${code}")
if(NOT output MATCHES "^<!DOCTYPE html>" OR NOT errors MATCHES "read here/compare.json: compare, 5 rows")
  message(SEND_ERROR "a page on stdout: ${errors}")
endif()

# Figures as files, and Markdown that shows them. Figures of an earlier report give a warning.
passes(here there --svg figures --markdown page.md)
holds(figures/throughput.svg "<svg xmlns=" " width='400' height='" "<style>" "fill:#0067a6" "</svg>")
lacks(figures/throughput.svg "var(")  # viewers other than browsers do not support variables
holds(page.md "# Training runs compared" "![Throughput](figures/throughput.svg)" "| source |" "`train --from here/compare.json --row zs0_fp32_ranks1`" "4,322 +- 43 tokens/s")
run(here --svg figures)
expect("exit code beside figures of an earlier report" 0 "${code}")
expect("the warning of figures of an earlier report"
       "warning: figures holds figures that do not belong to this report: latency-map.svg, latency.svg; remove them\n" "${errors}")

# The CSV has all rows with the column names of result files. Values that were not measured are empty.
passes(here there --csv all.csv)
file(STRINGS "${WORK}/all.csv" lines)
list(LENGTH lines count)
expect("lines of the CSV" 9 "${count}")
list(GET lines 0 head)
list(GET lines 1 first)
if(NOT head MATCHES "^source,program,file,experiment,model,device,sharding,.*,median_tokens_per_sec,.*,unsteady$" OR
   NOT first MATCHES "^here,compare,here/compare.json,zs0_fp32_ranks1,tiny,cpu,zs0,fp32,none,none,,,.*,1000,.*,false$")
  message(SEND_ERROR "the CSV is ${head}\n${first}")
endif()

# --summarize combines the step logs of earlier runs.
set(head "global_step,step_time_s,tokens_per_sec,gpu_max_mem_mb,loss\n")
foreach(index 1 2 3)
  file(WRITE "${WORK}/old/zs2_fp16_ranks4_bs4_sl64/run${index}/step_log.csv"
       "${head}1,9,1,8.5,5\n2,0.${index},${index}00,8.5,4\n3,0.${index},${index}00,8.5,3\n")
endforeach()
passes(--summarize old --csv old.csv --html old.html)
file(STRINGS "${WORK}/old.csv" lines)
list(GET lines 1 line)
if(NOT line MATCHES "^old,step logs,old,zs2_fp16_ranks4_bs4_sl64,,cpu,zs2,fp16,none,.*,3,3,1,0,200,100,50,0.2,0.2")
  message(SEND_ERROR "folded step logs: ${line}")
endif()
passes(here --summarize old --warmup 2 --markdown both.md)
holds(both.md "3 runs; the first 2 steps of each were not timed" "step logs")

# Foreign text is escaped in pages, figures, tables, commands and file names.
set(evil "<script>alert(1)</script>\\\"'&|`\\u0007\\u001b]\\u202e")
string(REPEAT "x" 500 long)
row(one "${evil}" "\"sharding\": \"${evil}\", \"model\": \"${evil}\", \"median_tokens_per_sec\": 10")
row(two "${long}" "\"sharding\": \"${long}\", \"model\": \"${evil}\", \"median_tokens_per_sec\": 20")
row(three "]]></svg></style><img>" "\"sharding\": \"=1+1\", \"model\": \"${evil}\", \"status\": \"failed\", \"reason\": \"${evil}\"")
document("<b>.json" "${evil}" "${one}, ${two}, ${three}")
passes("<b>.json" --html evil.html --svg evil --markdown evil.md --csv evil.csv --title "</title><script>")
file(READ "${WORK}/evil.html" page)
string(REGEX MATCHALL "<script" scripts "${page}")
expect("scripts of the page" "<script" "${scripts}")
string(REGEX MATCHALL "</svg></style>|<img|<b>|onerror=" tags "${page}")
expect("tags out of text" "" "${tags}")
string(FIND "${page}" "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;" at)
if(at EQUAL -1)
  message(SEND_ERROR "the page does not show its text as text")
endif()
lacks(evil.md "<script" "<img")
file(GLOB figures "${WORK}/evil/*.svg")
foreach(file IN LISTS figures)
  file(READ "${file}" svg)
  if(svg MATCHES "<script|</svg></style>")
    message(SEND_ERROR "${file} holds ${CMAKE_MATCH_0}")
  endif()
endforeach()
string(ASCII 7 bell)
foreach(file evil.html evil.md evil/throughput.svg)
  lacks(${file} "${bell}")
endforeach()

# With 5,000 rows the page has a bounded size and hides most rows, and figures state how many rows they omit.
set(many "")
foreach(index RANGE 1 5000)
  string(APPEND many "{\"experiment\": \"e${index}\", \"status\": \"ok\", \"sharding\": \"zs${index}\", \"median_tokens_per_sec\": ${index}, \"spread_pct\": 1},\n")
endforeach()
document(many.json "compare" "${many}{\"experiment\": \"last\", \"status\": \"ok\"}")
passes(many.json --html many.html)
file(SIZE "${WORK}/many.html" size)
if(size GREATER 3000000)
  message(SEND_ERROR "a page of 5,000 rows has ${size} bytes")
endif()
holds(many.html "Show all 5,001 rows" "<tbody hidden>" "Shown are 12 of 5,000 rows")

passes(--help)
foreach(part "--html" "--svg" "--markdown" "--csv" "--summarize" "--warmup" "Examples:")
  string(FIND "${output}" "${part}" at)
  if(at EQUAL -1)
    message(SEND_ERROR "--help lacks ${part}")
  endif()
endforeach()
