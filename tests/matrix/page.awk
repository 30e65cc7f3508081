# SPDX-License-Identifier: Apache-2.0
# awk -f page.awk CELLS: lines of `tsv` (run) as support-matrix.md.
BEGIN { FS = "\t" }
function remember(text, known, list) { if (!(text in known)) { known[text] = ++list[0]; list[list[0]] = text } }
function note(reason) {
  if (reason == "-") return ""
  remember(reason, note_of, notes)
  return " (" note_of[reason] ")"
}
function joined(list, separator,   i, text) { for (i = 1; i <= list[0]; ++i) text = text (i > 1 ? separator : "") list[i]; return text }
{
  table = $1 FS $2
  remember(table, known_tables, tables); remember($3, known_stages, stages); remember($4, known_precisions, precisions)
  remember($5, known_offloads, offloads); remember($6, known_again, again)
  cell[table, $3, $4, $5, $6] = $7 FS $8 FS $9
  ++count[table, $7]
  if ($8 != "-") { remember($8, known_runs, runs); if (++ran[table, $8] > ran[table, usual[table]] + 0) usual[table] = $8 }
}
# What one cell of a table says: its values of recompute together where they agree.
function said(table, stage, precision, offload,   i, what, groups, known, members, part, text, g) {
  delete groups; delete known; delete members; groups[0] = 0
  for (i = 1; i <= again[0]; ++i) {
    what = cell[table, stage, precision, offload, again[i]]
    remember(what, known, groups)
    members[known[what]] = members[known[what]] (members[known[what]] == "" ? "" : ", ") again[i]
  }
  for (g = 1; g <= groups[0]; ++g) {
    split(groups[g], part, FS)
    text = text (g > 1 ? "; " : "") part[1] note(part[3])
    if (part[2] != "-" && part[2] != usual[table]) text = text " (run " known_runs[part[2]] ")"
    if (groups[0] > 1) text = text ": " members[g]
  }
  return text
}
END {
  print "# The support matrix\n"
  print "Which ZeRO stage trains in which precision, with which offload and which recomputation, on which device, for which family of models. `tests/matrix/run` writes this page and"
  print "[`support-matrix.json`](support-matrix.json), which has every cell, from runs of `compare`; nothing here is written by hand, and a test fails where a choice of the build has no cell.\n"
  print "A cell has *passed* when a tiny model of the family took three steps in it on each number of ranks of its run, every loss was finite, no step was skipped, and its weights equal"
  print "those of `zs0` without offload and recomputation on the fewest ranks, in the same precision and of the same global batch, to the bit (under `Reduction<Ordered>`,"
  print "[which bits are promised](concepts.md#which-bits-are-promised)). It is *refused* when the program refuses it, with its sentence as a note, *failed* when it neither passed nor was"
  print "refused, and *not run* while no machine with the device has run it. It says nothing about other slots, models or numbers of ranks.\n"
  print "```sh\ntests/matrix/run build/cpu/bin                        # every cell of the CPU; the others stay as they are\ntests/matrix/run build/cuda/bin --device cuda         # those of GPUs; with one GPU also --ranks 1"
  print "tests/matrix/run --merge FILE build/cpu/bin           # takes what a support-matrix.json of another machine has run\n```\n"
  print "| family | device | passed | refused | failed | not run | run |\n|---|---|---|---|---|---|---|"
  for (t = 1; t <= tables[0]; ++t) {
    table = tables[t]; split(table, name, FS)
    if (usual[table] != "") used = known_runs[usual[table]]; else used = "none"
    printf "| %s | %s | %d | %d | %d | %d | %s |\n", name[1], name[2], count[table, "passed"], count[table, "refused"], count[table, "failed"], count[table, "not run"], used
  }
  if (runs[0] > 0) print "\n| run | date | commit | ranks | machine |\n|---|---|---|---|---|"
  for (i = 1; i <= runs[0]; ++i) { split(runs[i], part, "|"); print "| " i " | " part[1] " | " part[2] " | " part[3] " | " part[4] " |" }
  print "\nIn the tables a cell stands for all of recompute " joined(again, ", ") ", where it does not name some; a number is that of a [note](#notes), and a run is named where it is not the table's own."
  for (t = 1; t <= tables[0]; ++t) {
    table = tables[t]; split(table, name, FS)
    print "\n## " name[1] " on " name[2] "\n"
    print "| stage | offload | " joined(precisions, " | ") " |"
    line = "|---|---|"
    for (p = 1; p <= precisions[0]; ++p) line = line "---|"
    print line
    same = 1
    one = said(table, stages[1], precisions[1], offloads[1])
    body = ""
    for (s = 1; s <= stages[0]; ++s) for (o = 1; o <= offloads[0]; ++o) {
      line = "| " stages[s] " | " offloads[o] " |"
      for (p = 1; p <= precisions[0]; ++p) {
        text = said(table, stages[s], precisions[p], offloads[o])
        if (text != one) same = 0
        line = line " " text " |"
      }
      body = body line "\n"
    }
    if (same) {
      body = "| all | all |"
      for (p = 1; p <= precisions[0]; ++p) body = body " " one " |"
      body = body "\n"
    }
    printf "%s", body
  }
  print "\n## Notes\n"
  for (i = 1; i <= notes[0]; ++i) { text = notes[i]; gsub(/\\"/, "\"", text); gsub(/[<>|]/, "\\\\&", text); print i ". " text }
}
