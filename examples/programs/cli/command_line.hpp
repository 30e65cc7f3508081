// SPDX-License-Identifier: Apache-2.0
// Parses the command line of a program. The class CommandLine parses the words itself. The library CLI11
// converts and stores the values and formats the help. Only the .cpp file includes CLI11, because it is
// large.
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

/// Returns `word`, in quotes if necessary, so that a shell reads it back as one unchanged word.
std::string in_shell(std::string const& word);

/// One flag whose value comes from a settings file, such as a DeepSpeed configuration. `where` is the file
/// and the key that give the value, for example "ds.json: train_batch_size".
struct FileSetting {
  std::string flag;
  Names values;  ///< empty if the flag is a switch, which has no value
  std::string where;
};

/// Reads a file of flags, which the command line names as @FILE, and returns the words of the file. Words and
/// quotes follow the rules of a shell. A word that starts with # begins a comment up to the end of the line.
/// Throws Error(usage) if the file cannot be read, or if a line does not close a quote. The message names the
/// file and the line.
Names flags_in(std::string const& path);

/// The flags of a program. Each flag is bound to a variable. In the functions that add a flag, `names` lists
/// its spellings, such as "--steps,--num-steps". Error messages about a value use the spelling that was
/// given. `type` is the placeholder of the value in `--help`, such as "N". The variable must hold the
/// default, which `--help` shows. Only a successful `parse` changes the variable.
class CommandLine {
 public:
  CommandLine(std::string program, std::string const& description, std::string const& examples);
  ~CommandLine();
  CommandLine(CommandLine const&) = delete;
  CommandLine& operator=(CommandLine const&) = delete;

  static constexpr char from_a_file[] = "Settings from a file";

  /// Sets the heading in `--help` for the flags that are added after this call.
  void group(std::string title) { group_ = std::move(title); }

  /// Adds a flag with a text value.
  void text(std::string const& names, std::string const& type, std::string& value, std::string const& help);
  /// Adds a flag whose value is one of the words in `choices`.
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
  /// Adds a flag with a size in bytes and an optional unit. The unit GB means 10^9 bytes.
  void bytes(std::string const& names, std::int64_t& value, std::string const& help);
  /// Adds a flag with a size of device memory and an optional unit. Here the unit GB means 2^30 bytes,
  /// because the names of GPUs use it so.
  void memory(std::string const& names, std::int64_t& value, std::string const& help);
  /// Adds a flag with a custom value. `parse` calls `accept(flag, value)`, which stores the value or throws.
  /// The argument `flag` is for error messages: the name of the flag, or the settings file and the key that
  /// give the value. `--help` prints `shown_default` as the default.
  void custom(std::string const& names, std::string const& type, std::string const& shown_default,
              std::string const& help, std::function<void(std::string const&, std::string const&)> accept);
  /// Registers flags of other programs, which a user may give to this program by mistake. `parse` refuses
  /// each flag in `names` with an error message that ends with `advice`. The characters '-' and '_' count as
  /// equal in the names of these flags.
  void foreign(Names const& names, std::string const& advice);
  /// Adds a flag with a list of values, separated by commas or spaces. `parse` calls `accept(flag, items)`,
  /// which stores the values or throws.
  void list(std::string const& names, std::string const& type, std::string const& shown_default,
            std::string const& help, std::function<void(std::string const&, Names const&)> accept);
  /// Adds a flag with a list of values that are separated by spaces. A value may contain commas, as paths and
  /// models do.
  void values(std::string const& names, std::string const& type, std::string const& shown_default,
              std::string const& help, std::function<void(std::string const&, Names const&)> accept);
  /// Adds a flag with a list of values. The command line may also give the values without the flag, before
  /// the first flag or between flags.
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
  /// Adds a switch, a flag without a value.
  void toggle(std::string const& names, bool& value, std::string const& help);
  /// Adds a flag whose value is the path of a settings file. `parse` calls `read(path)`, which returns the
  /// settings of the file, before `parse` changes the variable of any flag. `read` may call `on_line`. A flag
  /// on the command line overrides the same flag in a settings file. If two settings files give the same
  /// flag, the file counts whose own flag was added to the program first.
  void settings_file(std::string const& names, std::string const& type, std::string const& help,
                     std::function<std::vector<FileSetting>(std::string const&)> read);
  /// Sets the function `choose`, which returns values for flags that neither the command line nor a file
  /// gives. `parse` calls `choose` before it changes the variable of any flag.
  void otherwise(std::function<std::vector<FileSetting>()> choose) { choose_ = std::move(choose); }

  /// Sets default flags: `words` are flags and values as on a command line. The flags of the command line and
  /// of files override these defaults. `origin` is the source of these defaults, such as the name of a
  /// launcher. The member function `origin(name)` returns this text for a flag with such a default.
  void preset(Names words, std::string origin) {
    preset_ = std::move(words);
    preset_origin_ = std::move(origin);
  }

  /// Parses the words of the command line and sets the variables. A word @FILE inserts the flags of a file;
  /// flags on the command line override flags of the file. Returns false if `--help` or `--version` was
  /// printed and the program should end. Throws Error(usage).
  bool parse(int argc, char const* const* argv);

  /// Returns the text that `--help` prints.
  std::string help_text() const;

  /// Returns whether the command line or a file gives the flag `name`, which may be any of its spellings.
  bool given(std::string const& name) const;
  /// Returns every flag that the command line or a file gives, with its values separated by spaces, in the
  /// order of the help text.
  std::vector<std::pair<std::string, std::string>> given_flags() const;
  /// Returns whether the program has this flag.
  bool knows(std::string const& name) const { return find(name) != nullptr; }
  /// Returns the values that the command line or a file of flags (@FILE) gives the flag; null if neither of
  /// them gives the flag. The settings files of `settings_file` do not count. `name` may be any spelling of
  /// the flag.
  Names const* on_line(std::string const& name) const;
  /// Returns the values of a flag from the command line or from a file; null if neither gives the flag.
  Names const* values_of(std::string const& name) const;
  /// Returns the spelling of the flag `name` on the command line. Returns `name` if the flag is not there.
  std::string written(std::string const& name) const;
  /// Returns the files of flags (@FILE) that the command line names.
  Names const& files_of_flags() const { return flag_files_; }
  /// Returns the spellings of the flags that were given, such as "--num-steps". If the command line names a
  /// file of flags (@FILE), returns only the flags of these files. If not, returns the flags of the command
  /// line.
  Names const& spelled() const { return spelled_; }
  /// Returns where the value of a flag comes from: "flag", "default", or the file and its key.
  std::string origin(std::string const& name) const;
  /// Returns every flag with its value and origin, one flag a line, in a form that @FILE can read back.
  /// Leaves out the flags of the group `from_a_file`. `derived` maps flags that were not given to the values
  /// that the program derived for them.
  std::string settings_text(std::map<std::string, std::string> const& derived) const;
  std::string const& program() const { return program_; }

 private:
  struct Entry {
    CLI::Option* option;
    std::string name;
    bool several;
    bool is_switch;
    std::string shown_default;
    std::string spelled;  // the spelling that was given; `name` if the flag was not given
    std::string where;    // the settings file and key that gives the flag; empty if none does
    std::string listed;   // the file of flags (@FILE) that gives the flag; empty if none does
  };

  void declare(std::string const& names, std::string const& type, std::string const& shown_default,
               std::string const& help, bool several,
               std::function<void(std::string const&, Names const&)> accept);
  Names all_names() const;
  Entry const* find(std::string const& name) const;
  Entry* find(std::string const& name);
  /// Parses the words and stores the values of each flag. If a flag appears several times, the last one
  /// counts. `origin` is the file of flags that contains the words; empty for the command line. The parser of
  /// CLI11 is not used for these reasons: if a value is missing, it reads the next flag as the value. It
  /// reads "-steps" as several flags and "-.5" as a flag, and joins the values of a repeated list. It also
  /// does not report errors in order, and does not report which spelling of a flag was used.
  void parse_words(Names const& words, std::string const& origin);
  /// Replaces the values of the flag by `values`.
  static void give(Entry& entry, Names values);
  /// Applies the settings of the settings files to flags that have no value yet. After that, applies the
  /// settings that the function `choose` of `otherwise` returns.
  void read_files();
  void add(std::vector<FileSetting> const& settings);

  std::unique_ptr<CLI::App> app_;
  std::string program_;
  std::string group_ = "Options";
  CLI::Option* bare_ = nullptr;  // the flag of `inputs`: it receives the words that belong to no other flag
  /// for each flag of another program, the advice of `foreign`; in the keys, '_' is replaced by '-'
  std::map<std::string, std::string> foreign_;
  std::vector<Entry> entries_;
  std::vector<std::pair<std::string, std::function<std::vector<FileSetting>(std::string const&)>>> readers_;
  std::function<std::vector<FileSetting>()> choose_;
  Names spelled_, flag_files_, preset_;
  std::string preset_origin_;
};

/// Returns argv as one line that a shell can run.
std::string command_text(int argc, char const* const* argv);

}  // namespace cli
}  // namespace programs
