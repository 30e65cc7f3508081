# SPDX-License-Identifier: Apache-2.0
# awk -f tsv.awk support-matrix.json: prints the cells for the function `tsv` of tests/matrix/run. Exits with 1 if the file is
# not a support matrix of version 2.
/^"schema_version": 2,$/ { known = 1 }
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
  if (count != 11 || (value[10] != "null" && !(value[10] in runs)) || (value[11] != "null" && !(value[11] in reasons))) { known = 0; exit }
  for (i = 1; i <= 9; ++i) printf "%s\t", substr(value[i], 2, length(value[i]) - 2)
  print (value[10] == "null" ? "-" : runs[value[10]]) "\t" (value[11] == "null" ? "-" : reasons[value[11]])
  ++cells
}
END { if (!known || cells == 0) exit 1 }
