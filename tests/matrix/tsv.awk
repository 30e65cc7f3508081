# SPDX-License-Identifier: Apache-2.0
# awk -f tsv.awk support-matrix.json: its cells as lines of `tsv` (run). Ends with 1 where it is none of version 1.
/^"schema_version": 1,$/ { known = 1 }
/^"(runs|reasons|cells)": \[$/ { part = substr($1, 2, length($1) - 3); next }
/^\],?$/ { part = "" }
part == "" { next }
{ sub(/,$/, "") }
part == "runs" {
  gsub(/^[{]"date": "|"[}]$/, ""); sub(/", "commit": "/, "|"); sub(/", "ranks": \[/, "|"); sub(/\], "machine": "/, "|")
  runs[run_count++] = $0
}
part == "reasons" { reasons[reason_count++] = substr($0, 2, length($0) - 2) }
part == "cells" {
  count = split(substr($0, 2, length($0) - 2), value, ", ")
  if (count != 9 || (value[8] != "null" && !(value[8] in runs)) || (value[9] != "null" && !(value[9] in reasons))) { known = 0; exit }
  for (i = 1; i <= 7; ++i) printf "%s\t", substr(value[i], 2, length(value[i]) - 2)
  print (value[8] == "null" ? "-" : runs[value[8]]) "\t" (value[9] == "null" ? "-" : reasons[value[9]])
  ++cells
}
END { if (!known || cells == 0) exit 1 }
