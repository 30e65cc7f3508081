# SPDX-License-Identifier: Apache-2.0
# cmake -DROOT=<repository> -DWORK=<folder> -P pages_selftest.cmake
# A clean page passes. Each planted mistake is refused with a message that names it.
cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE "${WORK}")
set(check pages.cmake)
set(page "${WORK}/troubleshooting.md")
set(options "-DROOT=${ROOT}" "-DPAGES=${WORK}")
include("${CMAKE_CURRENT_LIST_DIR}/judge.cmake")

set(version "include/tessera/version.hpp")
judge("A page about `${version}`.\n```cpp from=${version}\ninline   constexpr char\n// ...\nnamespace tessera {\ninline namespace v0\n```\n
[itself](troubleshooting.md)\n\n| file | what |\n|---|---|\n| `${version}` | `namespace tessera`, in `include/tessera` |\n\n| text | cause |\n|---|---|\n| `a Comm needs a transport, but got ...` | none |\n" "")
judge("```cpp from=${version}\ninline constexpr char verse[];\n```\n" "does not hold")
judge("```cpp from=include/tessera/verse.hpp\n```\n" "quotes include/tessera/verse.hpp")
judge("[nowhere](nowhere.md)\n" "links to nowhere.md")
judge("See `include/tessera/verse.hpp`.\n" "names include/tessera/verse.hpp")
judge("| text |\n|---|\n| `a Comm wants ... transport` |\n" "no source says 'a Comm wants '")
judge("| file |\n|---|\n| `${version}` | `verse_of` |\n" "version.hpp does not hold verse_of")

# A table of sections names the first file of each section: the first file with a table row, or else the first file in the text.
set(other "include/tessera/fwd.hpp")
set(sections "\n## Two files\n\nText with `${other}`.\n\n| file |\n|---|\n| `${version}` |\n\n## A file, in text\n\nSee `${other}`.\n")
judge("| [a](#two-files) | `${version}` |\n| [b](#a-file-in-text) | `${other}`, and `${version}` |\n${sections}" "")
judge("| [a](#two-files) | `${other}` |\n${sections}" "names ${other} for section #two-files")
judge("| [b](#a-file-in-text) | `${version}` |\n${sections}" "names ${version} for section #a-file-in-text")
judge("| [c](#no-section) | `${version}` |\n${sections}" "whose first file is none")
