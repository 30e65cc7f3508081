// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string_view>
#include <system_error>
#include <utility>

#include <CLI/CLI.hpp>

#include "tessera/version.hpp"

#include "machine/build_facts.hpp"

namespace programs {
using namespace tessera;
namespace cli {

namespace {

/// Returns the first spelling in `names` that begins with "--", or `names` if there is none. `names` lists
/// the spellings of one flag, such as "-h,--help".
std::string first_name(std::string const& names) {
  for (auto const& name : split_list("flag", {names}))
    if (name.starts_with("--")) return name;
  return names;
}

/// Returns whether a word of a command line is a flag: "-x" and "--x" are flags; "-", "-3" and "-.5" are
/// values.
bool is_flag(std::string_view word) {
  if (word.size() < 2 || word[0] != '-') return false;
  return !(word[1] >= '0' && word[1] <= '9') && word[1] != '.';
}

}  // namespace

std::string in_shell(std::string const& word) {
  constexpr char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string quoted = "'";
  for (char const c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + '\'';
}

Names flags_in(std::string const& path) {
  std::ifstream file(path);
  std::string const name = files::path_text(path);
  std::error_code code;
  if (!file || std::filesystem::is_directory(path, code))
    refuse("@" + name +
           ": cannot be read; name a file of flags, and write ./@... for a path that begins with @");
  Names words;
  std::string line;
  constexpr std::size_t max_bytes = 1 << 20;
  std::size_t bytes = 0;
  // Reads the next line of the file into `line`. Returns false at the end of the file. Throws Error(usage) if
  // the file has more than max_bytes bytes. std::getline has no such limit: it would read forever from a
  // device file that never sends a line end.
  auto const next_line = [&] {
    line.clear();
    char c = 0;
    while (bytes <= max_bytes && file.get(c) && c != '\n') {
      line += c;
      ++bytes;
    }
    if (file.bad()) refuse("@" + name + ": cannot be read; name a file of flags that can be read");
    if (bytes > max_bytes) refuse("@" + name + ": is longer than 1 MiB; name a file of flags");
    return bool(file) || !line.empty();
  };
  for (int number = 1; next_line(); ++number) {
    std::string word;
    bool open = false;  // whether `word` has begun; an empty quoted word is a word too
    char quote = 0;
    for (std::size_t at = 0; at <= line.size(); ++at) {
      char const c = at < line.size() ? line[at] : ' ';
      if (quote != 0 && at == line.size())
        refuse("@" + name + ", line " + std::to_string(number) + ": a quote is not closed");
      if (c == '#' && !open && quote == 0) break;
      if (quote != 0 ? c == quote : c == '\'' || c == '"') {
        quote = quote == 0 ? c : '\0';
        open = true;
      } else if (quote != 0 || (c != ' ' && c != '\t' && c != '\r')) {
        word += c;
        open = true;
      } else if (open) {
        if (word.size() > 1 && word.front() == '@')
          refuse("@" + name + ", line " + std::to_string(number) + ": " + in_quotes(word) +
                 " is another file of flags; name it on the command line");
        words.push_back(std::exchange(word, {}));
        open = false;
      }
    }
  }
  return words;
}

CommandLine::CommandLine(std::string program, std::string const& description, std::string const& examples)
    : app_(std::make_unique<CLI::App>(description, program)), program_(std::move(program)) {
  app_->footer(
      examples +
      "\nExit codes of the programs: 0 done, 1 failed, 2 wrong command line, 3 settings that contradict "
      "each other or are\nnot in this build, 4 data or weights, 5 out of memory, 6 a rank was lost, 7 the "
      "loss is not finite; 129, 130 and 143\ninterrupted.\n");
  app_->set_help_flag();
  app_->get_formatter()->column_width(34);
  app_->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}
CommandLine::~CommandLine() = default;

void CommandLine::text(std::string const& names, std::string const& type, std::string& value,
                       std::string const& help) {
  custom(names, type, value, help, [&value](std::string const&, std::string const& given) { value = given; });
}

void CommandLine::choice(std::string const& names, Names const& choices, std::string& value,
                         std::string const& help) {
  custom(names, joined(choices, "|"), value, help,
         [&value, choices](std::string const& flag, std::string const& given) {
           value = cli::choice(flag, given, choices);
         });
}

void CommandLine::real(std::string const& names, double& value, std::string const& help, Range range) {
  custom(names, "X", shortest(value), help,
         [&value, range](std::string const& flag, std::string const& given) {
           value = parse_real(flag, given, range);
         });
}

void CommandLine::path(std::string const& names, std::string const& type, std::filesystem::path& value,
                       std::string const& help) {
  custom(names, type, value.string(), help,
         [&value](std::string const&, std::string const& given) { value = given; });
}

void CommandLine::bytes(std::string const& names, std::int64_t& value, std::string const& help) {
  custom(names, "BYTES", "", help,
         [&value](std::string const& flag, std::string const& given) { value = bytes_number(flag, given); });
}

void CommandLine::memory(std::string const& names, std::int64_t& value, std::string const& help) {
  custom(names, "BYTES", "", help, [&value](std::string const& flag, std::string const& given) {
    value = bytes_number(flag, given, 1024.0);
    if (value < 1024)
      refuse(flag + " is " + std::to_string(value) + " bytes; give a unit, such as " + given + "GiB");
  });
}

void CommandLine::custom(std::string const& names, std::string const& type, std::string const& shown_default,
                         std::string const& help,
                         std::function<void(std::string const&, std::string const&)> accept) {
  declare(names, type, shown_default, help, false,
          [accept = std::move(accept)](std::string const& flag, Names const& values) {
            accept(flag, values.back());
          });
}

void CommandLine::list(std::string const& names, std::string const& type, std::string const& shown_default,
                       std::string const& help,
                       std::function<void(std::string const&, Names const&)> accept) {
  values(names, type, shown_default, help,
         [accept = std::move(accept)](std::string const& flag, Names const& given) {
           accept(flag, split_list(flag, given));
         });
}

void CommandLine::values(std::string const& names, std::string const& type, std::string const& shown_default,
                         std::string const& help,
                         std::function<void(std::string const&, Names const&)> accept) {
  declare(names, type, shown_default, help, true, std::move(accept));
}

void CommandLine::inputs(std::string const& names, std::string const& type, std::string const& help,
                         std::function<void(std::string const&, Names const&)> accept) {
  values(names, type, "", help, std::move(accept));
  bare_ = entries_.back().option;
}

void CommandLine::toggle(std::string const& names, bool& value, std::string const& help) {
  CLI::Option* const made = app_->add_flag_callback(
      names, [&value] { value = true; }, help);
  made->group(group_);
  entries_.push_back({made, first_name(names), false, true, "", first_name(names), {}, {}});
}

void CommandLine::settings_file(std::string const& names, std::string const& type, std::string const& help,
                                std::function<std::vector<FileSetting>(std::string const&)> read) {
  declare(names, type, "", help, false, [](std::string const&, Names const&) {});
  readers_.emplace_back(first_name(names), std::move(read));
}

bool CommandLine::parse(int argc, char const* const* argv) {
  bool help = false, show_version = false;
  group("This program");
  toggle("-h,--help", help, "show this text");
  toggle("--version", show_version, "show the version");
  Names words_of_line;
  bool listed = false;
  if (!preset_.empty()) parse_words(preset_, preset_origin_);
  spelled_.clear();
  for (int at = 1; at < argc; ++at) {
    std::string const word = argv[at];
    if (word.size() < 2 || word.front() != '@') {
      words_of_line.push_back(word);
      continue;
    }
    listed = true;
    flag_files_.push_back(word.substr(1));
    parse_words(flags_in(word.substr(1)),
                word.substr(word.find_last_of('/') == word.npos ? 1 : word.find_last_of('/') + 1));
  }
  Names const of_files = spelled_;
  parse_words(words_of_line, {});
  if (listed) spelled_ = of_files;
  if (!given("--help") && !given("--version")) read_files();
  for (Entry const& entry : entries_)
    if (entry.option->count() > 0) entry.option->run_callback();
  if (help) std::cout << help_text();
  if (show_version) {
    std::cout << program_ << " (tessera " << version;
    if (*git_hash != '\0') std::cout << ", git " << git_hash;
    std::cout << ")\n";
  }
  return !help && !show_version;
}

std::string CommandLine::help_text() const {
  std::string text = app_->help();
  for (std::size_t at = 0; (at = text.find("\n\n\n", at)) != std::string::npos;) text.erase(at, 1);
  return text;
}

bool CommandLine::given(std::string const& name) const { return values_of(name) != nullptr; }

Names const* CommandLine::on_line(std::string const& name) const {
  Entry const* const entry = find(name);
  return entry == nullptr || !entry->where.empty() ? nullptr : values_of(name);
}

Names const* CommandLine::values_of(std::string const& name) const {
  Entry const* const entry = find(name);
  return entry == nullptr || entry->option->count() == 0 ? nullptr : &entry->option->results();
}

std::string CommandLine::written(std::string const& name) const {
  Entry const* const entry = find(name);
  return entry == nullptr ? name : entry->spelled;
}

std::string CommandLine::origin(std::string const& name) const {
  Entry const* const entry = find(name);
  if (entry == nullptr || entry->option->count() == 0) return "default";
  return !entry->where.empty() ? entry->where : !entry->listed.empty() ? entry->listed : "flag";
}

std::string CommandLine::settings_text(std::map<std::string, std::string> const& derived) const {
  std::vector<std::pair<std::string, std::string>> lines;
  std::size_t widest = 0;
  for (Entry const& entry : entries_) {
    bool const is_given = entry.option->count() > 0;
    if ((entry.is_switch && !is_given) || entry.option->get_group() == from_a_file) continue;
    std::string line = entry.name;
    auto const actual = derived.find(entry.name);
    std::string const& implied = actual == derived.end() ? entry.shown_default : actual->second;
    if (!is_given) line += implied.empty() ? "" : " " + in_shell(implied);
    if (is_given && !entry.is_switch)
      for (std::string const& value : entry.option->results()) line += " " + in_shell(value);
    if (!is_given && implied.empty()) line = "# " + line;
    widest = std::max(widest, std::min<std::size_t>(line.size(), 60));
    lines.emplace_back(std::move(line), origin(entry.name));
  }
  std::string text;
  for (auto const& [line, where] : lines)
    text += line + std::string(line.size() < widest ? widest - line.size() : 0, ' ') + "  # " + where + "\n";
  return text;
}

void CommandLine::declare(std::string const& names, std::string const& type, std::string const& shown_default,
                          std::string const& help, bool several,
                          std::function<void(std::string const&, Names const&)> accept) {
  auto const set = [this, at = entries_.size(), accept = std::move(accept)](Names const& values) {
    accept(entries_[at].where.empty() ? entries_[at].spelled : entries_[at].where, values);
    return true;
  };
  CLI::Option* const made = app_->add_option(names, set, help);
  made->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  made->group(group_);
  made->option_text(type + (shown_default.empty() ? "" : " [" + shown_default + "]"));
  std::string const name = first_name(names);
  entries_.push_back({made, name, several, false, shown_default, name, {}, {}});
}

Names CommandLine::all_names() const {
  Names names;
  for (auto const& entry : entries_)
    for (auto const& name : entry.option->get_lnames()) names.push_back("--" + name);
  return names;
}

CommandLine::Entry const* CommandLine::find(std::string const& name) const {
  CLI::Option const* const option = app_->get_option_no_throw(name);
  auto const found = std::ranges::find(entries_, option, &Entry::option);
  return found == entries_.end() ? nullptr : &*found;
}
CommandLine::Entry* CommandLine::find(std::string const& name) {
  return const_cast<Entry*>(std::as_const(*this).find(name));
}

std::vector<std::pair<std::string, std::string>> CommandLine::given_flags() const {
  std::vector<std::pair<std::string, std::string>> flags;
  for (Entry const& entry : entries_)
    if (entry.option->count() > 0)
      flags.emplace_back(entry.name, entry.is_switch ? std::string() : joined(entry.option->results(), " "));
  return flags;
}

void CommandLine::foreign(Names const& names, std::string const& advice) {
  for (std::string name : names) {
    std::replace(name.begin(), name.end(), '_', '-');
    foreign_[name] = advice;
  }
}

void CommandLine::parse_words(Names const& words, std::string const& origin) {
  for (std::size_t at = 0; at < words.size();) {
    std::string const word = words[at++];
    if (!is_flag(word) && bare_ != nullptr && !word.empty()) {
      bare_->add_result(word);
      continue;
    }
    if (!is_flag(word)) {
      Names const names = all_names();
      std::string const meant = nearest("--" + word, names);
      bool const close = edit_distance("--" + word, meant) <= 2;
      refuse("unexpected " + in_quotes(word) + ": values follow their flag" +
             (close ? ", the nearest flag is " + meant : std::string()) + "; see " + program_ + " --help");
    }
    std::size_t const equals = word.find('=');
    std::string const name = word.substr(0, equals);
    Entry* const entry = find(name);
    if (entry == nullptr) {
      std::string spelled = name;
      std::replace(spelled.begin(), spelled.end(), '_', '-');
      if (auto const found = foreign_.find(spelled); found != foreign_.end())
        refuse(in_quotes(name) + " " + found->second);
      std::string const dashed = name.starts_with("--") ? name : "-" + name;
      refuse("unknown flag " + in_quotes(name) + ", the nearest is " + nearest(dashed, all_names()) +
             "; see " + program_ + " --help");
    }
    Names values;
    if (equals != std::string::npos) values.push_back(word.substr(equals + 1));
    if (entry->is_switch) {
      if (!values.empty()) refuse(name + " takes no value, but " + in_quotes(values[0]) + " was given");
    } else {
      while (at < words.size() && !is_flag(words[at]) && (entry->several || values.empty()))
        values.push_back(words[at++]);
      if (values.empty())
        refuse(name + " needs a value" +
               (at < words.size() ? ", but " + in_quotes(words[at]) + " follows"
                                  : std::string(", and none follows")) +
               "; give " + name + " VALUE");
      for (auto const& value : values)
        if (value.empty()) refuse(name + " has an empty value; give one, or leave the flag out");
    }
    give(*entry, std::move(values));
    entry->spelled = name;
    entry->listed = origin;
    spelled_.push_back(name);
  }
}

void CommandLine::give(Entry& entry, Names values) {
  if (entry.is_switch) values = {"true"};
  entry.option->clear();
  entry.option->add_result(std::move(values));
}

void CommandLine::read_files() {
  for (auto const& [flag, read] : readers_)
    if (Names const* const path = on_line(flag)) add(read(path->back()));
  if (choose_) add(choose_());
}

void CommandLine::add(std::vector<FileSetting> const& settings) {
  for (FileSetting const& setting : settings) {
    Entry* const entry = find(setting.flag);
    if (entry == nullptr || entry->option->count() > 0) continue;
    give(*entry, setting.values);
    entry->where = setting.where;
  }
}

std::string command_text(int argc, char const* const* argv) {
  std::string line;
  for (int at = 0; at < argc; ++at) line += (at == 0 ? "" : " ") + in_shell(argv[at]);
  return line;
}

}  // namespace cli
}  // namespace programs
