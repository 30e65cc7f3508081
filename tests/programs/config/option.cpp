// SPDX-License-Identifier: Apache-2.0
// A program that prints the command-line flags of the optimizer's options, and their values. The test
// option.cmake checks this output.
#include <exception>
#include <iostream>

#include "tessera/train/check_options.hpp"

#include "cli/option_flags.hpp"
#include "machine/build_facts.hpp"

char const* const programs::cli::git_hash = "";  // CMake defines it only for programs

int main(int argc, char** argv) {
  namespace ts = tessera;
  try {
    ts::TrainerOptions options;
    options.batch = options.sequence = 1;
    programs::cli::CommandLine line("option", "Prints the settings of the optimizer.", "");
    line.group("Optimizer");
    programs::cli::add_option_flags(line, ts::OptionGroup::optimizer, options);
    if (!line.parse(argc, argv)) return 0;
    ts::detail::check_options(options, 1);
    programs::cli::Json settings = programs::cli::Json::object();
    programs::cli::add_option_values(settings, ts::OptionGroup::optimizer, options);
    std::cout << settings.dump() << "\n";
  } catch (std::exception const& error) {
    std::cout << error.what() << "\n";
    return 2;
  }
}
