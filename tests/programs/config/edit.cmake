# SPDX-License-Identifier: Apache-2.0
# Edits files in a copy of the tree. The caller sets WORK, the folder of the copy.

# edit(<file below WORK> <text> <new text>): replaces the text; fails if the file does not contain it.
function(edit file before after)
  set(path "${WORK}/${file}")
  file(READ "${path}" text)
  string(REPLACE "${before}" "${after}" changed "${text}")
  if(changed STREQUAL text)
    message(FATAL_ERROR "${file} does not hold: ${before}")
  endif()
  file(WRITE "${path}" "${changed}")
endfunction()
