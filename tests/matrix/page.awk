# SPDX-License-Identifier: Apache-2.0
# awk -f page.awk CELLS: prints support-matrix.md. CELLS has the output of the function `tsv` of tests/matrix/run. A table has
# the cells of one family, device, adapters and mesh.
BEGIN { FS = "\t" }
function remember(text, known, list) { if (!(text in known)) { known[text] = ++list[0]; list[list[0]] = text } }
function note(reason) {
  if (reason == "-") return ""
  remember(reason, note_of, notes)
  return " (" note_of[reason] ")"
}
# Returns the text of the inside of a JSON string, for a cell of a table.
function plain(text) { gsub(/\\"/, "\"", text); gsub(/\\u007c/, "\\|", text); gsub(/\\\\/, "\\", text); return text }
function joined(list, separator,   i, text) { for (i = 1; i <= list[0]; ++i) text = text (i > 1 ? separator : "") list[i]; return text }
{
  table = $1 FS $2 FS $7 FS $8
  remember(table, known_tables, tables); remember($3, known_stages, stages); remember($4, known_precisions, precisions)
  remember($5, known_offloads, offloads); remember($6, known_again, again)
  cell[table, $3, $4, $5, $6] = $9 FS $10 FS $11
  ++count[table, $9]
  if ($10 != "-") { remember($10, known_runs, runs); if (++ran[table, $10] > ran[table, usual[table]] + 0) usual[table] = $10 }
}
# Returns the text of one cell of a table. Values of recompute with equal texts share one text.
function said(table, stage, precision, offload,   i, what, groups, known, members, part, text, g) {
  delete groups; delete known; delete members; groups[0] = 0
  for (i = 1; i <= again[0]; ++i) {
    if (!((table, stage, precision, offload, again[i]) in cell)) continue  # adapters and meshes have recompute none only
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
  print "This page lists every combination of ZeRO stage, precision, offload and recomputation, for each device and model family. It"
  print "says whether the combination trains. Two more tables for each family and device have low-rank adapters (`--adapters lora`),"
  print "and a mesh of two replicas (`--mesh replicate=2`). `tests/matrix/run` runs `compare` and writes this page and"
  print "[`support-matrix.json`](support-matrix.json), which has every cell. A test fails if a combination of the build has no cell.\n"
  print "- *passed*: a tiny model of the family made three steps on each number of ranks of the run. Every loss was finite, and no step"
  print "  was skipped. The weights have the same bits as the weights of stage 0 without offload, recomputation and mesh on the fewest"
  print "  ranks, in the same precision and with the same global batch. The rows use `Reduction<Ordered>`, so"
  print "  [these bits must be equal](concepts.md#which-bits-are-promised)."
  print "- *refused*: the program refuses the combination. A note has its message."
  print "- *failed*: the combination has not passed and was not refused."
  print "- *not run*: no machine with this device has run the combination.\n"
  print "The page says nothing about other policies, models and numbers of ranks.\n"
  print "```sh\ntests/matrix/run build/cpu/bin                        # all cells of the CPU\ntests/matrix/run build/cuda/bin --device cuda         # all cells of GPUs; with one GPU add --ranks 1"
  print "tests/matrix/run build/cuda/bin --device cuda --share 1/4   # a quarter of these cells"
  print "tests/matrix/run --merge FILE build/cpu/bin           # adds the cells of another machine from its support-matrix.json\n```\n"
  print "| family | device | adapters | mesh | passed | refused | failed | not run | run |\n|---|---|---|---|---|---|---|---|---|"
  for (t = 1; t <= tables[0]; ++t) {
    table = tables[t]; split(table, name, FS)
    if (usual[table] != "") used = known_runs[usual[table]]; else used = "none"
    printf "| %s | %s | %s | %s | %d | %d | %d | %d | %s |\n", name[1], name[2], name[3], name[4], count[table, "passed"], count[table, "refused"], count[table, "failed"], count[table, "not run"], used
  }
  if (runs[0] > 0) print "\n| run | date | commit | ranks | machine |\n|---|---|---|---|---|"
  for (i = 1; i <= runs[0]; ++i) { split(runs[i], part, "|"); print "| " i " | " plain(part[1]) " | " plain(part[2]) " | " part[3] " | " part[4] " |" }
  print "\nA cell of the tables without adapters and mesh is true for all values of `--recompute`: " joined(again, ", ") ". If they differ, the"
  print "cell names them. The other tables have recompute none. A number in parentheses is the number of a [note](#notes). A cell"
  print "names its run if it is not the run of its table above."
  for (t = 1; t <= tables[0]; ++t) {
    table = tables[t]; split(table, name, FS)
    print "\n## " name[1] " on " name[2] (name[3] == "none" ? "" : " with adapters " name[3]) (name[4] == "flat" ? "" : " with mesh " name[4]) "\n"
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
