# SPDX-License-Identifier: Apache-2.0
# run= awk -v family= -v device= -v ranks= -v stages= -v precisions= -v offloads= -v recompute= -v adapters= -v mesh=
#     -f rows.awk REFERENCE.json ROWS.json
# The run is an environment variable, because awk would replace the escapes of JSON in an option -v.
#
# Prints the cells of the given lists in the format of the function `tsv` of tests/matrix/run. ROWS.json has the rows of
# compare. The weights of each row must equal the weights of a row of REFERENCE.json: zs0 without offload and recomputation on
# the fewest ranks.
function fail(reason) { status = "failed"; why = why (why == "" ? "" : "; ") reason; }

/^    [{]$/ { at = ""; losses = 0; strange = 0; delete field; next }
/^      "[a-z_0-9]+": / {
  key = $1; gsub(/[":]/, "", key)
  value = $0; sub(/^[^:]*: /, "", value); sub(/,$/, "", value); gsub(/^"|"$/, "", value)
  field[key] = value; at = key; next
}
/^        / && at == "losses" { ++losses; if ($1 !~ /^-?[0-9.]+(e[-+]?[0-9]+)?,?$/) ++strange; next }
/^    },?$/ {
  file = FILENAME == ARGV[1] ? "reference" : "rows"
  key = file SUBSEP field["sharding"] SUBSEP field["precision"] SUBSEP field["offload"] SUBSEP field["recompute"] SUBSEP field["world"]
  state[key] = field["status"]; reason[key] = field["reason"]; hash[key] = field["weights_hash"]
  if (state[key] == "ok" && (losses == 0 || strange > 0)) { state[key] = "failed"; reason[key] = "a loss is not finite" }
  if (state[key] == "ok" && field["skipped_steps"] != "0") { state[key] = "failed"; reason[key] = "steps were skipped" }
}

END {
  count = split(ranks, world, ",")
  first = world[1]
  for (w = 2; w <= count; ++w) if (world[w] + 0 < first + 0) first = world[w]
  s_count = split(stages, s, ","); p_count = split(precisions, p, ","); o_count = split(offloads, o, ","); r_count = split(recompute, r, ",")
  for (i = 1; i <= s_count; ++i) for (j = 1; j <= p_count; ++j) for (k = 1; k <= o_count; ++k) for (l = 1; l <= r_count; ++l) {
    wanted = "reference" SUBSEP "zs0" SUBSEP p[j] SUBSEP "none" SUBSEP "none" SUBSEP first
    status = "passed"; why = ""; refused = 0
    for (w = 1; w <= count; ++w) {
      key = "rows" SUBSEP s[i] SUBSEP p[j] SUBSEP o[k] SUBSEP r[l] SUBSEP world[w]
      on = world[w] (world[w] == 1 ? " rank: " : " ranks: ")
      if (!(key in state)) fail(on "compare has no such row")
      else if (state[key] == "refused") { ++refused; refusal = reason[key]; refused_on = on }
      else if (state[key] != "ok") fail(on reason[key])
      else if (state[wanted] != "ok") fail("zs0 without offload and recomputation did not pass, so its weights cannot be compared")
      else if (hash[key] !~ /^[0-9a-f]+$/ || hash[key] != hash[wanted])
        fail(on "its weights differ from the weights of zs0 without offload and recomputation")
    }
    if (status == "passed" && refused > 0) { status = "refused"; why = refused == count ? refusal : refused_on refusal }
    printf "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", family, device, s[i], p[j], o[k], r[l], adapters, mesh, status, ENVIRON["run"], why == "" ? "-" : why
  }
}
