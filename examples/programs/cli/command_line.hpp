// SPDX-License-Identifier: Apache-2.0
// Parses the command line of a program. The library CLI11 stores the flags and their values and prints the
// help. Only the .cpp file includes CLI11, because it is large.
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

/// Quotes a word so that a shell reads it back unchanged.
std::string in_shell(std::string const& word);

/// A flag that a file sets, with its values and its position in the file ("ds.json: train_batch_size").
struct FileSetting {
  std::string flag;
  Names values;  ///< empty: a switch
  std::string where;
};

/// Reads a file of flags. Splits it into words as a shell does. A word that starts with # begins a comment up
/// to the end of the line. Throws Error(usage), which names the file and the line of an unclosed quote.
Names flags_in(std::string const& path);

/// The flags of a program, each bound to a variable. Names have the form "--steps,--num-steps"; messages use
/// the first one. A variable holds the default that `--help` shows, and changes only if `parse` succeeds.
class CommandLine {
 public:
  CommandLine(std::string program, std::string const& description, std::string const& examples);
  ~CommandLine();
  CommandLine(CommandLine const&) = delete;
  CommandLine& operator=(CommandLine const&) = delete;

  static constexpr char from_a_file[] = "Settings from a file";

  /// Sets the heading in `--help` for the flags that follow.
  void group(std::string title) { group_ = std::move(title); }

  /// Adds a flag with a text value.
  void text(std::string const& names, std::string const& type, std::string& value, std::string const& help);
  /// Adds a flag whose value is one of some names.
  void choice(std::string const& names, Names const& choices, std::string& value, std::string const& help);
  /// Adds a flag with an integer value from `min` to `max`.
  template <class Integer>
  void integer(std::string const& names, Integer& value, std::string const& help, std::int64_t min = 1,
               std::int64_t max = std::numeric_limits<Integer>::max() >
                                          std::numeric_limits<std::int64_t>::max()
                                      ? std::numeric_limits<std::int64_t>::max()
                                      : static_cast<std::int64_t>(std::numeric_limits<Integer>::max())) {
    custom(names, "N", std::to_string(value), help,
           [&value, min, max](std::string const& flag, std::string const& given) {
             value = static_cast<Integer>(parse_integer(flag, given, min, max));
           });
  }
  /// Adds a flag with a real value.
  void real(std::string const& names, double& value, std::string const& help, Range range = {});
  /// Adds a flag with a path. An empty path means that the flag was not given.
  void path(std::string const& names, std::string const& type, std::filesystem::path& value,
            std::string const& help);
  /// Adds a flag with a size in bytes and an optional unit. A GB is 10^9 bytes.
  void bytes(std::string const& names, std::int64_t& value, std::string const& help);
  /// Adds a flag with a size of device memory and an optional unit. A GB is a GiB, as in the names of GPUs.
  void memory(std::string const& names, std::int64_t& value, std::string const& help);
  /// Adds a flag with a custom value: `accept(flag, value)` stores it or throws.
  void custom(std::string const& names, std::string const& type, std::string const& shown_default,
              std::string const& help, std::function<void(std::string const&, std::string const&)> accept);
  /// Adds a flag with a list of values between commas or spaces: `accept(flag, items)` stores them or throws.
  void list(std::string const& names, std::string const& type, std::string const& shown_default,
            std::string const& help, std::function<void(std::string const&, Names const&)> accept);
  /// Adds a flag with several values that may contain commas, such as paths and models.
  void values(std::string const& names, std::string const& type, std::string const& shown_default,
              std::string const& help, std::function<void(std::string const&, Names const&)> accept);
  /// Adds a flag whose values may also appear without it, before the first flag or between flags.
  void inputs(std::string const& names, std::string const& type, std::string const& help,
              std::function<void(std::string const&, Names const&)> accept);
  /// Adds a flag with a list of integers.
  template <class Integer>
  void integer_list(std::string const& names, std::vector<Integer>& value, std::string const& help,
                    std::int64_t min = 1, std::int64_t max = std::numeric_limits<Integer>::max()) {
    Names shown;
    for (auto const number : value) shown.push_back(std::to_string(number));
    list(names, "N,...", joined(shown, ","), help,
         [&value, min, max](std::string const& flag, Names const& items) {
           value.clear();
           for (auto const& item : items)
             value.push_back(static_cast<Integer>(parse_integer(flag, item, min, max)));
           value = distinct(value);
         });
  }
  /// Adds a switch without a value.
  void toggle(std::string const& names, bool& value, std::string const& help);
  /// Adds a flag whose value is a file of settings. `parse` calls `read(path)` before any variable changes;
  /// `read` may call `on_line`. Flags on the command line override files, and earlier files override later
  /// ones.
  void settings_file(std::string const& names, std::string const& type, std::string const& help,
                     std::function<std::vector<FileSetting>(std::string const&)> read);
  /// Sets a function that returns values for flags given neither on the command line nor in a file. `parse`
  /// calls it before any variable changes.
  void otherwise(std::function<std::vector<FileSetting>()> choose) { choose_ = std::move(choose); }

  /// Sets flags that the command line and its files override. `origin` says where they come from.
  void preset(Names words, std::string origin) {
    preset_ = std::move(words);
    preset_origin_ = std::move(origin);
  }

  /// Parses the words. @FILE inserts the flags of a file; flags on the command line override them. Returns
  /// false if `--help` or `--version` was printed and the program should end. Throws Error(usage).
  bool parse(int argc, char const* const* argv);

  /// Returns the text that `--help` prints.
  std::string help_text() const;

  /// Returns whether the command line or a file gives a flag, by any of its names.
  bool given(std::string const& name) const;
  /// Returns whether the program has this flag.
  bool knows(std::string const& name) const { return find(name) != nullptr; }
  /// Returns the values of a flag on the command line itself, by any of its names; null if only a file gives
  /// them.
  Names const* on_line(std::string const& name) const;
  /// Returns the values of a flag from the command line or from a file; null if neither gives the flag.
  Names const* values_of(std::string const& name) const;
  /// Returns the files of flags (@FILE) that the command line names.
  Names const& files_of_flags() const { return flag_files_; }
  /// Returns the words that gave flags, as spelled on the command line or in the files of flags.
  Names const& spelled() const { return spelled_; }
  /// Returns where the value of a flag comes from: "flag", "default", or the file and its key.
  std::string origin(std::string const& name) const;
  /// Returns every flag with its value and origin, one per line, in a form that @FILE can read back. Omits
  /// the flags of the group `from_a_file`. `derived` holds the derived values of flags that were not given.
  std::string settings_text(std::map<std::string, std::string> const& derived) const;
  std::string const& program() const { return program_; }

 private:
  struct Entry {
    CLI::Option* option;
    std::string name;
    bool several;
    bool is_switch;
    std::string shown_default;
    std::string where;   // source in a file of settings; empty if none gives it
    std::string listed;  // file of flags that gives it; empty if none does
  };

  void declare(std::string const& names, std::string const& type, std::string const& shown_default,
               std::string const& help, bool several,
               std::function<void(std::string const&, Names const&)> accept);
  Names all_names() const;
  Entry const* find(std::string const& name) const;
  Entry* find(std::string const& name);
  /// Parses the words. If a flag appears several times, the last one counts. CLI11 does not do this because
  /// it takes a flag as the value of the flag before it, reads "-steps" as several flags and "-.5" as a flag,
  /// joins the values of a repeated list, does not report errors in order, and does not tell which of its
  /// names a flag was given by.
  void parse_words(Names const& words, std::string const& origin);
  /// Sets the values of a flag and drops earlier ones.
  static void give(Entry& entry, Names values);
  /// Applies the settings of files, and then those of `otherwise`, to flags that have no value yet.
  void read_files();
  void add(std::vector<FileSetting> const& settings);

  std::unique_ptr<CLI::App> app_;
  std::string program_;
  std::string group_ = "Options";
  CLI::Option* bare_ = nullptr;  // takes the words that follow no flag
  std::vector<Entry> entries_;
  std::vector<std::pair<std::string, std::function<std::vector<FileSetting>(std::string const&)>>> readers_;
  std::function<std::vector<FileSetting>()> choose_;
  Names spelled_, flag_files_, preset_;
  std::string preset_origin_;
};

/// Formats argv as one line that a shell can run.
std::string command_text(int argc, char const* const* argv);

}  // namespace cli
}  // namespace programs
