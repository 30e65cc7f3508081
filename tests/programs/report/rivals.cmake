# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=report -DROOT=repository -DWORK=folder -P rivals.cmake
# Tests rows of other programs. They appear next to ours in figures and in a separate table, and not in sentences about ours.
# Files that violate docs/rivals.schema.json are refused.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")

set(rows "")
foreach(stage 0 1 3)
  math(EXPR rate "1000 - ${stage}")
  row(one zs${stage}_fp32 "\"sharding\": \"zs${stage}\", \"world\": 1, \"median_tokens_per_sec\": ${rate}, \"spread_pct\": 0.01")
  string(APPEND rows "${one},\n")
endforeach()
row(one zs0_fp32_b8 "\"sharding\": \"zs0\", \"world\": 1, \"batch\": 8, \"median_tokens_per_sec\": 1500")
document(ours.json "compare" "${rows}${one}")

set(work "\"model\": \"tiny\", \"precision\": \"fp32\", \"batch\": 4, \"sequence\": 64, \"machine\": \"A box\"")
# rivals(file "row" "row"): writes a file with rows of other programs.
function(rivals file)
  list(JOIN ARGN ",\n" all)
  file(WRITE "${WORK}/${file}" "{\"schema_version\": 1, \"note\": \"said of all\", \"rivals\": [\n${all}]}")
endfunction()
rivals(rivals.json
  "{\"program\": \"Swift <b>\", \"version\": \"7.5\", \"date\": \"2026-01-31\", ${work}, \"median_tokens_per_sec\": 9000, \"std_tokens_per_sec\": 12, \"peak_gpu_mem_mb\": 2.5}"
  "{\"program\": \"Staged\", ${work}, \"sharding\": \"zs1\", \"median_tokens_per_sec\": 400, \"note\": \"one <i>note</i>\"}"
  "{\"program\": \"Staged\", ${work}, \"sharding\": \"zs3\", \"median_tokens_per_sec\": 300, \"peak_gpu_mem_mb\": 7}"
  "{\"program\": \"Swift <b>\", ${work}, \"world\": 2, \"median_tokens_per_sec\": 12345}")

passes(ours.json rivals.json --html page.html --svg figures --markdown page.md --csv all.csv)
if(NOT output MATCHES "read rivals.json: other programs, 4 rows\n  said of all\n")
  message(SEND_ERROR "what was read is not said: ${output}")
endif()
holds(page.html "id='figure-rivals'" "id='figure-stages'" "<h2>Other programs</h2>" "Other programs than Tessera" "one &lt;i&gt;note" "2026-01-31" "A box"
      "Fastest: zs0 batch 8 with 1,500" "Other programs: 4 rows in a separate table" "Of several rows of a program, the fastest is shown. 1 row of another program has no row of the same work here." "whiskers are one deviation, over steps, or over repeats if there are several"
      "not measured by compare")
lacks(page.html "<b>" "12,345<title" "Fastest: Swift")
holds(figures/rivals.svg ">Tessera zs0</text>" ">Swift &lt;b&gt;</text>" ">Staged zs1</text>" ">9,000 " ">1,000 " "tiny, fp32, 4 x 64 tokens"
      "@media (prefers-color-scheme:dark)" "fill:#0067a6" "fill:#5ab1ea" "svg .paper{fill:#fff}" "svg .paper{fill:#15171b}" "fill='#fff' class='paper'")
lacks(figures/rivals.svg "var(" "12,345" "1,500" "Staged zs3" "8 x 64")  # rows without a counterpart, and slower rows of a program
holds(figures/stages.svg ">Tessera zs0</text>" ">Tessera zs3</text>" ">Staged zs1</text>" ">Staged zs3</text>" ">peak MB of a rank</text>")
lacks(figures/stages.svg "Swift")
lacks(figures/throughput.svg "Swift" "9,000")  # only our rows
holds(page.md "## Other programs" "![Throughput of Tessera and other programs](figures/rivals.svg)")

# Our bars come first, then the others in order of speed. Each program has its colour.
file(READ "${WORK}/figures/rivals.svg" svg)
if(NOT svg MATCHES ">Tessera zs0<.*class='f1'.*>Swift .*class='f2'.*>Staged zs1<.*class='f3'")
  message(SEND_ERROR "bars are in another order, or of another colour: ${svg}")
endif()
file(STRINGS "${WORK}/all.csv" lines)
list(LENGTH lines count)
expect("lines of the CSV" 9 "${count}")
list(GET lines 5 line)
if(NOT line MATCHES "^rivals,Swift <b>,rivals.json,Swift <b>,tiny,,,fp32,none,none,")
  message(SEND_ERROR "a row of another program in the CSV: ${line}")
endif()

# Only rivals, and no rivals.
passes(rivals.json --html alone.html)
holds(alone.html "<h2>Other programs</h2>" "no row of another program does the same work as a row here")
passes(ours.json --html ours.html)
holds(ours.html "no row of another program was given")
lacks(ours.html "<h2>Other programs</h2>" "Other programs:")

# A row of ours with an offload and other ranks is not the same work.
row(one other "\"sharding\": \"zs0\", \"world\": 2, \"median_tokens_per_sec\": 10, \"offload\": \"cpu_optimizer\"")
document(other.json "compare" "${one}")
passes(other.json rivals.json --html other.html)
lacks(other.html "id='figure-rivals'")

# Models of different sizes under one name are not the same work. A rival without a number of parameters matches none of them.
row(one full "\"world\": 1, \"sharding\": \"zs0\", \"median_tokens_per_sec\": 500, \"params\": 1000, \"trainable_params\": 1000")
row(two small "\"world\": 1, \"sharding\": \"zs0\", \"median_tokens_per_sec\": 700, \"params\": 600, \"trainable_params\": 600")
row(three frozen "\"world\": 1, \"sharding\": \"zs1\", \"median_tokens_per_sec\": 999, \"params\": 1000, \"trainable_params\": 10")
set(unsaid "{\"program\": \"Unsaid\", ${work}, \"median_tokens_per_sec\": 333}")
set(said "{\"program\": \"Said\", ${work}, \"median_tokens_per_sec\": 444, \"params\": 1000, \"std_tokens_per_sec\": 40}")
document(sizes.json "compare" "${one}, ${two}, ${three}")
rivals(of_sizes.json "${unsaid}" "${said}")
passes(sizes.json of_sizes.json --html sizes.html --svg sizes)
holds(sizes/rivals.svg "tiny, fp32, 1,000 parameters, 4 x 64 tokens" ">500 " ">Said</text>" "~")  # a deviation of 9% is unsteady
lacks(sizes/rivals.svg "600 parameters" ">700 " ">999 " "Unsaid")
holds(sizes.html "1 row of another program has no row of the same work here. Of these 1 does not give &#39;params&#39;, in which rows here differ."
      "Without 1 row that trains a part of the parameters." "no two rows differ only in their stage")
document(size.json "compare" "${one}, ${three}")
rivals(of_size.json "${unsaid}" "{\"program\": \"Padded\", ${work}, \"median_tokens_per_sec\": 444, \"params\": 1024}")
passes(size.json of_size.json --svg size)
holds(size/rivals.svg ">Unsaid</text>" ">500 ")
lacks(size/rivals.svg "Padded" ">999 " "parameters")

# Each of our machines has a separate group. Programs that a group does not show are counted.
document(there.json "compare" "${one}")
file(READ "${WORK}/there.json" json)
string(REPLACE "A CPU" "Another CPU" json "${json}")
file(WRITE "${WORK}/there.json" "${json}")
set(many "")
foreach(index RANGE 1 14)
  list(APPEND many "{\"program\": \"P${index}\", ${work}, \"sharding\": \"zs0\", \"median_tokens_per_sec\": ${index}}")
endforeach()
rivals(many.json ${many})
passes(size.json there.json many.json --html many.html --svg many)
holds(many/rivals.svg "4 x 64 tokens, Tessera on A CPU" "4 x 64 tokens, Tessera on Another CPU" ">P14 zs0</text>")
lacks(many/rivals.svg ">P2 zs0</text>")
holds(many.html "Tessera was measured on: A CPU; Another CPU." "Shown are 26 of 30 bars.")

# Shows the fastest row of each program and stage next to our row of that stage. Bars that a group does not show are counted.
row(zs1 zs1 "\"world\": 1, \"sharding\": \"zs1\", \"median_tokens_per_sec\": 400, \"params\": 1000, \"trainable_params\": 1000")
document(staged.json "compare" "${one}, ${zs1}")
rivals(staged.json.rivals ${many} "{\"program\": \"P1\", ${work}, \"sharding\": \"zs0\", \"median_tokens_per_sec\": 77}")
passes(staged.json staged.json.rivals --html staged.html --svg staged)
holds(staged/stages.svg ">P1 zs0</text>" ">77.0<" ">P12 zs0</text>")
lacks(staged/stages.svg ">P13 zs0</text>")
holds(staged.html "Shown are 14 of 16 bars.")

# Violations of the schema. {W} is replaced by the fields of $work.
foreach(case
    "[]|'rivals' holds no row"
    "[7]|row 1: is not an object;docs/rivals.schema.json"
    "[{{W}, \"program\": \"P\", \"median_tokens_per_sec\": 1}, {{W}, \"median_tokens_per_sec\": 1}]|row 2: lacks 'program'"
    "[{\"program\": \"P\", \"median_tokens_per_sec\": 1}]|row 1: lacks 'model'"
    "[{\"program\": \"P\", \"model\": \"m\", \"precision\": \"p\", \"batch\": 1, \"sequence\": 1, \"median_tokens_per_sec\": 1}]|row 1: lacks 'machine'"
    "[{\"program\": \"P\", \"model\": \"m\", \"precision\": \"p\", \"machine\": \"a\", \"median_tokens_per_sec\": 1}]|row 1: lacks 'batch'"
    "[{{W}, \"program\": \"P\"}]|lacks 'median_tokens_per_sec'"
    "[{{W}, \"program\": \"P\", \"median_tokens_per_sec\": 0}]|'median_tokens_per_sec' is 0"
    "[{{W}, \"program\": \"P\", \"median_tokens_per_sec\": -1}]|'median_tokens_per_sec' is below 0"
    "[{{W}, \"program\": \"P\", \"median_tokens_per_sec\": \"1k\"}]|'median_tokens_per_sec' is not a number"
    "[{{W}, \"program\": \"P\", \"median_tokens_per_sec\": 1, \"world\": 1.5}]|'world' is not a whole number from 1 to"
    "[{{W}, \"program\": \"P\", \"median_tokens_per_sec\": 1, \"date\": \"31 May\"}]|'date' is '31 May';2026-01-31"
    "[{{W}, \"program\": \"P\", \"median_tokens_per_sec\": 1, \"tok_s\": 1}]|a key 'tok_s';median_tokens_per_sec"
    "[{{W}, \"program\": 7.5, \"median_tokens_per_sec\": 1}]|'program' is not text"
    "null|'rivals' is not a list of rows"
    "{}|'rivals' is not a list of rows"
    "[{{W}, \"program\": \"P\", \"median_tokens_per_sec\": 1, \"batch\": 9007199254740993}]|'batch' is not a whole number from 1 to 2^53 - 1"
    "[{{W}, \"program\": \"P\", \"median_tokens_per_sec\": 1, \"params\": 1e30}]|'params' is not a whole number from 1 to 2^53 - 1"
    "[{{W}, \"program\": \"P\", \"median_tokens_per_sec\": 1, \"date\": \"2026-13-01\"}]|'date' is '2026-13-01'"
    "[{{W}, \"program\": \"P\", \"median_tokens_per_sec\": 1, \"date\": \"2026-01-32\"}]|'date' is '2026-01-32'"
    "[{{W}, \"program\": \"P\", \"median_tokens_per_sec\": 1, \"sharding\": \"zs4\"}]|'sharding' is 'zs4';dp or zs0 to zs3"
    "[{{W}, \"program\": \"P \", \"median_tokens_per_sec\": 1}]|'program' is 'P ';white space"
    "[{{W}, \"program\": \" \", \"median_tokens_per_sec\": 1}]|'program' is ' ';white space"
    "[{{W}, \"program\": \"\\ufeffP\", \"median_tokens_per_sec\": 1}]|'program' is;with white space at an end or an invisible character"
    "[{{W}, \"program\": \"P\\u200bQ\", \"median_tokens_per_sec\": 1}]|'program' is;with white space at an end or an invisible character"
    "[{{W}, \"program\": \"P\\tQ\", \"median_tokens_per_sec\": 1}]|'program' is;with white space at an end or an invisible character"
    "[{{W}, \"program\": \"Plan\", \"median_tokens_per_sec\": 1}]|is named 'Plan', like a program of Tessera"
    "[{{W}, \"program\": \"compare\", \"median_tokens_per_sec\": 1}]|is named 'compare'"
    "[{{W}, \"program\": \"tessera 0.1\", \"median_tokens_per_sec\": 1}]|is named 'tessera 0.1';rows of Tessera must come from compare")
  string(REGEX MATCH "^([^|]*)[|](.*)$" parts "${case}")
  set(texts "${CMAKE_MATCH_2}")
  string(REPLACE "{W}" "${work}" json "${CMAKE_MATCH_1}")
  file(WRITE "${WORK}/bad.json" "{\"schema_version\": 1, \"rivals\": ${json}}")
  refuses(4 "bad.json;${texts}" bad.json --html page.html)
endforeach()
file(WRITE "${WORK}/bad.json" "{\"schema_version\": 1, \"rows_of\": 1, \"rivals\": [1]}")
refuses(4 "a key 'rows_of'" bad.json --html page.html)
file(WRITE "${WORK}/bad.json" "{\"rivals\": [1]}")
refuses(4 "'schema_version'" bad.json --html page.html)
file(WRITE "${WORK}/bad.json" "{\"schema_version\": 2, \"rivals\": [1]}")
refuses(4 "schema_version 2;newer program" bad.json --html page.html)

# The schema has exactly the keys that the program reads.
rivals(keys.json "{\"no\": 1}")
run(keys.json --html page.html)
string(REGEX MATCH "their keys are ([a-z_, ]+)" keys "${errors}")
string(REPLACE ", " ";" keys "${CMAKE_MATCH_1}")
list(SORT keys)
file(READ "${ROOT}/docs/rivals.schema.json" schema)
string(JSON properties GET "${schema}" $defs row properties)
string(JSON count LENGTH "${properties}")
math(EXPR last "${count} - 1")
set(known "")
foreach(index RANGE ${last})
  string(JSON key MEMBER "${properties}" ${index})
  list(APPEND known ${key})
endforeach()
list(SORT known)
expect("keys of docs/rivals.schema.json" "${known}" "${keys}")

# Schema and program accept and refuse the same values.
set(row "{\"program\": \"P\", ${work}, \"median_tokens_per_sec\": 1}")
foreach(key IN LISTS known)
  string(JSON type GET "${properties}" ${key} type)
  string(JSON no_least ERROR_VARIABLE without GET "${properties}" ${key} minLength)
  string(JSON pattern ERROR_VARIABLE free GET "${properties}" ${key} pattern)
  string(JSON enum ERROR_VARIABLE open GET "${properties}" ${key} enum)
  string(JSON least ERROR_VARIABLE none GET "${properties}" ${key} minimum)
  foreach(value null "\"\"" "\"zs3\"" 7 0 1.5 9007199254740992)
    set(takes OFF)
    if(value STREQUAL "null")
      string(FIND "${type}" "null" at)
    elseif(value MATCHES "\"")
      string(FIND "${type}" "string" at)
      if(NOT free OR (NOT without AND value STREQUAL "\"\"") OR (NOT open AND value STREQUAL "\"\""))
        set(at -1)
      endif()
    else()
      string(REGEX MATCH "integer|number" kind "${type}")
      set(at 0)
      if(kind STREQUAL "" OR (value STREQUAL "0" AND NOT least STREQUAL "0") OR (kind STREQUAL "integer" AND value MATCHES "^1.5$|^9007"))
        set(at -1)
      endif()
    endif()
    if(NOT at EQUAL -1)
      set(takes ON)
    endif()
    string(JSON changed SET "${row}" ${key} "${value}")
    rivals(value.json "${changed}")
    run(value.json --csv value.csv)
    if((takes AND NOT code EQUAL 0) OR (NOT takes AND NOT code EQUAL 4))
      message(SEND_ERROR "'${key}' of ${value}: docs/rivals.schema.json takes it: ${takes}; report ended with ${code}: ${errors}")
    endif()
  endforeach()
endforeach()
