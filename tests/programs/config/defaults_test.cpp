// SPDX-License-Identifier: Apache-2.0
// Tests the note that names the defaults of the published comparisons.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "cli/command_line.hpp"
#include "config/published_defaults.hpp"

namespace cli = programs::cli;

namespace {

/// Returns the note for a command line of a program that has the flags --models, --steps and --defaults.
std::string note_of(std::vector<char const*> words) {
  cli::CommandLine line("program", "", "");
  std::string model, steps, defaults = "own";
  line.text("--models,--model", "NAME", model, "");
  line.text("--steps,--num-steps", "N", steps, "");
  cli::add_defaults_flag(line, defaults);
  words.insert(words.begin(), "program");
  CHECK(line.parse(static_cast<int>(words.size()), words.data()));
  return cli::defaults_note(line);
}

}  // namespace

TEST_CASE("defaults: only a line with nothing but --model gets a note") {
  CHECK(note_of({"--model", "gpt2"}).starts_with("note: --model alone has the defaults of this program; "));
  CHECK(note_of({"--model=gpt2"}).ends_with("(--defaults offload-sweep) on one rank\n"));
  CHECK(note_of({}).empty());
  CHECK(note_of({"--models", "gpt2"}).empty());
  CHECK(note_of({"--model", "gpt2", "--steps", "3"}).empty());
  CHECK(note_of({"--model", "gpt2", "--num-steps", "3"}).empty());
  CHECK(note_of({"--model", "gpt2", "--defaults", "own"}).empty());
}
