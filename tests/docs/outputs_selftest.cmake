# SPDX-License-Identifier: Apache-2.0
# cmake -DPLAN=plan -DWORK=<folder> -P outputs_selftest.cmake
# A page that quotes plan correctly passes. Each planted mistake is refused with a message that names it.
cmake_minimum_required(VERSION 3.25)

set(check outputs.cmake)
set(page "${WORK}/page.md")
set(options "-DPLAN=${PLAN}" "-DPAGES=${page}")
include("${CMAKE_CURRENT_LIST_DIR}/judge.cmake")

set(command "```sh\nbuild/cpu/bin/plan --version\n```\n")
execute_process(COMMAND "${PLAN}" --version OUTPUT_VARIABLE version)
judge("${command}```output\n${version}```\n" "")
judge("${command}```output\n...\n${version}```\n" "does not print these lines")
judge("${command}```output\n${version}a planted line\n```\n" "a planted line")
judge("${command}```output\n${version}...\na planted line\n```\n" "a planted line")
judge("```output\n${version}```\n" "no command of plan above it")
judge("```sh\nbuild/cpu/bin/plan --no-such-flag\n```\n```output\n${version}```\n" "ended with 2")
judge("${command}" "no page has a block 'output'")
