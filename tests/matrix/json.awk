# SPDX-License-Identifier: Apache-2.0
# awk -f json.awk CELLS: lines of `tsv` (run) as support-matrix.json.
BEGIN { FS = "\t" }
function place(text, known, list,   size) {
  if (text == "-") return "null"
  if (!(text in known)) { size = list[0]++; known[text] = size; list[size + 1] = text }
  return known[text]
}
{
  line = "[\"" $1 "\", \"" $2 "\", \"" $3 "\", \"" $4 "\", \"" $5 "\", \"" $6 "\", \"" $7 "\", \"" $8 "\", \"" $9 "\", "
  cells[NR] = line place($10, known_runs, runs) ", " place($11, known_reasons, reasons) "]"
}
END {
  print "{\n\"schema_version\": 2,"
  print "\"description\": \"The support matrix of tests/matrix/run. A cell's run and reason are positions in runs and reasons, from 0.\","
  print "\"columns\": [\"family\", \"device\", \"stage\", \"precision\", \"offload\", \"recompute\", \"adapters\", \"mesh\", \"status\", \"run\", \"reason\"],"
  print "\"runs\": ["
  for (i = 1; i <= runs[0]; ++i) {
    split(runs[i], part, "|")
    printf "{\"date\": \"%s\", \"commit\": \"%s\", \"ranks\": [%s], \"machine\": \"%s\"}%s\n", part[1], part[2], part[3], part[4], i < runs[0] ? "," : ""
  }
  print "],\n\"reasons\": ["
  for (i = 1; i <= reasons[0]; ++i) print "\"" reasons[i] "\"" (i < reasons[0] ? "," : "")
  print "],\n\"cells\": ["
  for (i = 1; i <= NR; ++i) print cells[i] (i < NR ? "," : "")
  print "]\n}"
}
