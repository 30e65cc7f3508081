# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=report -DWORK=folder -P refusals.cmake
# A file that cannot be read or written gives one line of error with the file, the position and a way out.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")

row(one zs0 "\"sharding\": \"zs0\", \"median_tokens_per_sec\": 10")
document(good.json "compare" "${one}")
set(page --html page.html)

# Command lines.
refuses(2 "nothing to report;--summarize" ${page})
refuses(2 "no output is named;--html FILE" good.json)
refuses(2 "--warmup;--summarize DIR" good.json --warmup 2 ${page})
refuses(2 "--hmtl;--html" good.json --hmtl page.html)
refuses(2 "given twice" good.json ./good.json ${page})
refuses(2 "--html 'good.json';same file" good.json --html good.json)
refuses(2 "--html 'a.out';--csv './a.out';same file" good.json --html a.out --csv ./a.out)
file(CREATE_LINK "${WORK}/good.json" "${WORK}/link.html" SYMBOLIC)
refuses(2 "same file" good.json --html link.html)
file(MAKE_DIRECTORY "${WORK}/figures")
file(CREATE_LINK "${WORK}/good.json" "${WORK}/figures/throughput.svg" SYMBOLIC)
refuses(2 "--svg 'figures/throughput.svg';same file" good.json --svg figures)
refuses(2 "--svg -;name of a folder" good.json --svg -)
# Outputs must not overwrite the files of a comparison in a folder.
file(COPY_FILE "${WORK}/good.json" "${WORK}/figures/compare.json")
file(WRITE "${WORK}/figures/compare.csv" "experiment")
refuses(2 "--csv 'figures/compare.csv';the input 'figures/compare.csv';same file" figures --csv figures/compare.csv)
file(REMOVE "${WORK}/figures/compare.json" "${WORK}/figures/compare.csv")

# Outputs that cannot be written. Nothing is written before.
refuses(1 "no/page.html" good.json --html no/page.html)
refuses(1 "text.txt" good.json --svg text.txt)

# Absent, empty, foreign, damaged, truncated and too new files.
refuses(4 "gone.json" gone.json ${page})
file(MAKE_DIRECTORY "${WORK}/bare")
refuses(4 "bare;holds no JSON of compare;--summarize" bare ${page})
foreach(case
    "empty.json||is empty"
    "blank.json|  \n |is empty"
    "words.txt|Once upon a time|is not a results file"
    "cut.json|{\"schema_version\": 3, \"rows\": [\n{\"experiment\": \"a\",|line 2;damaged or cut off"
    "list.json|[1, 2]|not the flat rows"
    "foreign.json|{\"a\": 1}|no list 'rows'"
    "unversioned.json|{\"rows\": [{\"experiment\": \"a\"}]}|'schema_version'"
    "new.json|{\"schema_version\": 99, \"rows\": []}|schema_version 99;newer program"
    "none.json|{\"schema_version\": 3, \"rows\": []}|holds no row"
    "number.json|{\"schema_version\": 3, \"rows\": [7]}|row 1;is not an object"
    "nameless.json|{\"schema_version\": 3, \"rows\": [{\"status\": \"ok\"}]}|row 1: lacks 'experiment'"
    "typed.json|{\"schema_version\": 3, \"rows\": [{\"experiment\": \"a\", \"status\": \"ok\", \"world\": \"two\"}]}|row 1: 'world' is not a number"
    "negative.json|{\"schema_version\": 3, \"rows\": [{\"experiment\": \"a\", \"status\": \"ok\", \"avg_step_time_s\": -1}]}|'avg_step_time_s' is below 0"
    "huge.json|{\"schema_version\": 3, \"rows\": [{\"experiment\": \"a\", \"status\": \"ok\", \"world\": 1e300}]}|'world' is beyond 1e30"
    "huger.json|{\"schema_version\": 3, \"rows\": [{\"experiment\": \"a\", \"world\": 1e999}]}|a number that is too large"
    "losses.json|{\"schema_version\": 3, \"rows\": [{\"experiment\": \"a\", \"status\": \"ok\", \"losses\": [\"x\"]}]}|'losses' holds a value that is not a number"
    "trace.json|{\"traceEvents\": []}|a trace;Perfetto"
    "run.jsonl|{\"schema_version\": 1, \"config\": {}}\n{\"step\": 1, \"lo|line 2: is not a JSON object"
    "started.jsonl|{\"schema_version\": 1, \"config\": {}}\n|it has no step"
    "rows.csv|experiment,model\n|give the compare.json in the same folder"
    "samples.csv|time_s,unix_s\n|give the file of its --json"
    "timeless.json|{\"schema_version\": 1, \"columns\": [\"a\"], \"samples\": [[1]]}|lacks time_s"
    "ragged.json|{\"schema_version\": 1, \"columns\": [\"time_s\"], \"samples\": [[1], [1, 2]]}|sample 2: is not a list of 1 values"
    "silent.json|{\"schema_version\": 1, \"columns\": [\"time_s\"], \"samples\": []}|holds no sample")
  string(REGEX MATCH "^([^|]*)[|]([^|]*)[|](.*)$" parts "${case}")
  set(file "${CMAKE_MATCH_1}")
  set(texts "${CMAKE_MATCH_3}")
  file(WRITE "${WORK}/${file}" "${CMAKE_MATCH_2}")
  refuses(4 "${file};${texts}" ${file} ${page})
endforeach()

# A file that would overflow the stack of the JSON library.
string(REPEAT "[" 200000 deep)
string(REPEAT "]" 200000 end_of_deep)
file(WRITE "${WORK}/deep.json" "{\"a\": ${deep}${end_of_deep}, \"b\": 1}")
refuses(4 "deep.json;nested more than 64 deep" deep.json ${page})

# Step logs.
set(head "global_step,step_time_s,tokens_per_sec,gpu_max_mem_mb,loss\n")
refuses(4 "gone: no such folder" --summarize gone ${page})
refuses(4 "good.json: is not a folder" --summarize good.json ${page})
refuses(4 "bare: contains no step_log.csv" --summarize bare ${page})
foreach(case "${head}|holds no step" "${head}1,2\n|line 2: has 2 values, not 5" "${head}1,x,1,1,1\n|line 2: step_time_s is 'x'"
             "a,b\n|line 1 is not the header" "|not the header")
  string(REGEX MATCH "^([^|]*)[|](.*)$" parts "${case}")
  set(texts "${CMAKE_MATCH_2}")
  file(WRITE "${WORK}/logs/a/run1/step_log.csv" "${CMAKE_MATCH_1}")
  refuses(4 "logs/a/run1/step_log.csv;${texts}" --summarize logs ${page})
endforeach()
