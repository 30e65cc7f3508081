# SPDX-License-Identifier: Apache-2.0
# cmake -DBIN=folder of programs -DROOT=<repository> -DWORK=<folder> -P commands_selftest.cmake
# A page with correct command lines passes. Each planted mistake is refused with a message that names it.
cmake_minimum_required(VERSION 3.25)

set(check commands.cmake)
set(page "${WORK}/page.md")
set(options "-DBIN=${BIN}" "-DROOT=${ROOT}" "-DWORK=${WORK}/work" "-DPAGES=${page}")
include("${CMAKE_CURRENT_LIST_DIR}/judge.cmake")

judge("```sh\nbuild/cpu/bin/train --data book.txt --steps 3\n```\nOr `compare --stages 0 1`, `train --from FILE`, `plan --machine`.\n" "")
judge("```sh\nbuild/cuda/bin/train --stepz 3\n```\n" "unknown flag '--stepz'")
judge("Run `plan --model gpt2-huge`.\n" "gpt2-huge")
judge("Run `compare @examples/experiments/none.flags`.\n" "none.flags")
judge("Run `train --from FILE`.\n" "no command lines")
