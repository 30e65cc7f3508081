// SPDX-License-Identifier: Apache-2.0
// The command line of a program. CLI11 declares the flags, keeps their values and prints the help; only the
// source includes it, because it is large.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/values.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace programs {
using namespace tessera;
namespace cli {

/// A word as a shell reads it back.
std::string in_shell(std::string const& word);

/// A flag that a file sets: its values, and what in the file says so ("ds.json: train_batch_size").
struct FileSetting {
  std::string flag;
  Names values;  ///< none: a switch
  std::string where;
};

/// The words of a file of flags, as a shell splits them; a word that begins with # and what follows it on its
/// line is a comment. Throws Error(usage) that names the file, and the line of a quote that is not closed.
Names flags_in(std::string const& path);

/// Flags with their variables. Names are "--steps,--num-steps": the first one is what messages say. Variables
/// hold the defaults, which `--help` shows, and change only when `parse` succeeds.
class CommandLine {
 public:
  CommandLine(std::string program, std::string const& description, std::string const& examples);
  ~CommandLine();
  CommandLine(CommandLine const&) = delete;
  CommandLine& operator=(CommandLine const&) = delete;

  static constexpr char from_a_file[] = "Settings from a file";

  /// The heading in `--help` of the flags that follow.
  void group(std::string title) { group_ = std::move(title); }

  /// A value as text.
  void text(std::string const& names, std::string const& type, std::string& value, std::string const& help);
  /// One of some names.
  void choice(std::string const& names, Names const& choices, std::string& value, std::string const& help);
  /// A whole number from `least` to `most`.
  template <class Integer>
  void whole(std::string const& names, Integer& value, std::string const& help, std::int64_t least = 1,
             std::int64_t most = std::numeric_limits<Integer>::max() >
                                         std::numeric_limits<std::int64_t>::max()
                                     ? std::numeric_limits<std::int64_t>::max()
                                     : static_cast<std::int64_t>(std::numeric_limits<Integer>::max())) {
    custom(names, "N", std::to_string(value), help,
           [&value, least, most](std::string const& flag, std::string const& given) {
             value = static_cast<Integer>(whole_number(flag, given, least, most));
           });
  }
  /// A real number.
  void real(std::string const& names, double& value, std::string const& help, Range range = {});
  /// A path. An empty one means that the flag was not given.
  void path(std::string const& names, std::string const& type, std::filesystem::path& value,
            std::string const& help);
  /// A size in bytes with an optional unit. A GB is 10^9 bytes.
  void bytes(std::string const& names, std::int64_t& value, std::string const& help);
  /// A size of device memory with an optional unit. A GB is a GiB, as in the names of GPUs.
  void memory(std::string const& names, std::int64_t& value, std::string const& help);
  /// Anything: `accept(flag, value)` stores or throws.
  void custom(std::string const& names, std::string const& type, std::string const& shown_default,
              std::string const& help, std::function<void(std::string const&, std::string const&)> accept);
  /// A list: values between commas or spaces. `accept(flag, items)` stores or throws.
  void list(std::string const& names, std::string const& type, std::string const& shown_default,
            std::string const& help, std::function<void(std::string const&, Names const&)> accept);
  /// Several values that may hold commas, such as paths and models.
  void values(std::string const& names, std::string const& type, std::string const& shown_default,
              std::string const& help, std::function<void(std::string const&, Names const&)> accept);
  /// Several values that also stand by themselves, before the first flag or between flags.
  void inputs(std::string const& names, std::string const& type, std::string const& help,
              std::function<void(std::string const&, Names const&)> accept);
  /// A list of whole numbers.
  template <class Integer>
  void whole_list(std::string const& names, std::vector<Integer>& value, std::string const& help,
                  std::int64_t least = 1, std::int64_t most = std::numeric_limits<Integer>::max()) {
    Names shown;
    for (auto const number : value) shown.push_back(std::to_string(number));
    list(names, "N,...", joined(shown, ","), help,
         [&value, least, most](std::string const& flag, Names const& items) {
           value.clear();
           for (auto const& item : items)
             value.push_back(static_cast<Integer>(whole_number(flag, item, least, most)));
           value = distinct(value);
         });
  }
  /// A switch without a value.
  void toggle(std::string const& names, bool& value, std::string const& help);
  /// A file that sets flags. `read(path)` is asked before any variable changes; `on_line` answers within it.
  /// A flag on the command line comes before one of a file, and one of a file before another in a later file.
  void settings_file(std::string const& names, std::string const& type, std::string const& help,
                     std::function<std::vector<FileSetting>(std::string const&)> read);
  /// Settings for what neither the line nor a file says. `choose` is asked before any variable changes.
  void otherwise(std::function<std::vector<FileSetting>()> choose) { choose_ = std::move(choose); }

  /// Reads the words; @FILE stands for flags in a file, before which those of the line come. True when the
  /// program should go on; false when `--help` or `--version` has been answered. Throws Error(usage).
  bool parse(int argc, char const* const* argv);

  /// What `--help` prints.
  std::string help_text() const;

  /// Whether the command line or a file gives a flag, by any of its names.
  bool given(std::string const& name) const;
  /// Whether the program has this flag.
  bool knows(std::string const& name) const { return find(name) != nullptr; }
  /// The values of a flag on the command line itself, by any of its names: nothing where a file gave them.
  Names const* on_line(std::string const& name) const;
  /// Returns the values of a flag from the command line or from a file; null if neither gives the flag.
  Names const* values_of(std::string const& name) const;
  /// Returns the files of flags (@FILE) that the command line names.
  Names const& files_of_flags() const { return flag_files_; }
  /// The flags as the line spells them; where it names files of flags, as those do.
  Names const& spelled() const { return spelled_; }
  /// "flag", "default", or what in a file says so.
  std::string origin(std::string const& name) const;
  /// Every flag with its value and where it came from, but for those of the group `from_a_file`: lines that
  /// the program would read as they stand. `settled` are values of flags that nobody gave, as they turned
  /// out.
  std::string settings_text(std::map<std::string, std::string> const& settled) const;
  std::string const& program() const { return program_; }

 private:
  struct Entry {
    CLI::Option* option;
    std::string name;
    bool several;
    bool takes_none;
    std::string shown_default;
    std::string where;   // what in a file of settings gives it; empty: none does
    std::string listed;  // the file of flags that gives it; empty: none does
  };

  void declare(std::string const& names, std::string const& type, std::string const& shown_default,
               std::string const& help, bool several,
               std::function<void(std::string const&, Names const&)> accept);
  Names all_names() const;
  Entry const* find(std::string const& name) const;
  Entry* find(std::string const& name);
  /// Reads words; the last appearance of a flag counts. CLI11 stores the values but does not read the words:
  /// it takes a flag as the value of the flag before it, reads "-steps" as several flags and "-.5" as a flag,
  /// joins the values of all appearances of a list, keeps no order between mistakes, and does not tell by
  /// which of its names a flag was given.
  void take(Names const& words, std::string const& origin);
  /// Gives a flag these values instead of any before.
  static void give(Entry& entry, Names values);
  /// Adds what files set to what was given, and then what is chosen for the rest.
  void read_files();
  void add(std::vector<FileSetting> const& settings);

  std::unique_ptr<CLI::App> app_;
  std::string program_;
  std::string group_ = "Options";
  CLI::Option* bare_ = nullptr;  // takes the words that follow no flag
  std::vector<Entry> entries_;
  std::vector<std::pair<std::string, std::function<std::vector<FileSetting>(std::string const&)>>> readers_;
  std::function<std::vector<FileSetting>()> choose_;
  Names spelled_, flag_files_;
};

/// argv as one line that a shell reads back.
std::string command_text(int argc, char const* const* argv);

}  // namespace cli
}  // namespace programs
