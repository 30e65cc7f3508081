// SPDX-License-Identifier: Apache-2.0
// Describes the terminal on stdout and draws on it: a progress bar, a box of settings, a table.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <iostream>
#include <locale.h>
#include <string>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "cli/values.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// The properties of the terminal behind an output stream. If the environment variable NO_COLOR has a value,
/// `colour` is false. The variable COLUMNS sets the width.
struct Terminal {
  bool interactive = false;  ///< whether the stream is a terminal that can redraw a line
  bool colour = false;
  int width = 0;  ///< columns; 0: no limit

  static Terminal of(int descriptor) {
    Terminal terminal;
    char const* const type = std::getenv("TERM");
    terminal.interactive = ::isatty(descriptor) == 1 && (type == nullptr || std::string_view(type) != "dumb");
    char const* const no_colour = std::getenv("NO_COLOR");
    terminal.colour = terminal.interactive && (no_colour == nullptr || *no_colour == '\0');
    winsize size{};
    if (terminal.interactive) {
      terminal.width = 80;
      if (::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) terminal.width = size.ws_col;
    }
    if (char const* const columns = std::getenv("COLUMNS")) {
      int given = 0;
      std::string_view const text(columns);
      auto const [end, code] = std::from_chars(text.data(), text.data() + text.size(), given);
      if (code == std::errc() && end == text.data() + text.size() && given >= 20) terminal.width = given;
    }
    return terminal;
  }

  std::string bold(std::string const& text) const { return colour ? "\033[1m" + text + "\033[0m" : text; }
  std::string red(std::string const& text) const { return colour ? "\033[31m" + text + "\033[0m" : text; }
  std::string green(std::string const& text) const { return colour ? "\033[32m" + text + "\033[0m" : text; }
};

namespace detail {

/// Calls `each(bytes, columns)` for every character of UTF-8 text, with its bytes and its width in terminal
/// columns. An invalid byte counts as a character of one column.
template <class Each>
void for_each_character(std::string_view text, Each&& each) {
  static locale_t const utf8 = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  locale_t const before = utf8 == nullptr ? nullptr : ::uselocale(utf8);
  while (!text.empty()) {
    std::mbstate_t state{};
    wchar_t letter = 0;
    std::size_t const read = std::mbrtowc(&letter, text.data(), text.size(), &state);
    bool const is_letter = read > 0 && read <= text.size();
    int const columns = is_letter ? ::wcwidth(letter) : 1;
    each(text.substr(0, is_letter ? read : 1), static_cast<std::size_t>(columns < 0 ? 1 : columns));
    text.remove_prefix(is_letter ? read : 1);
  }
  if (utf8 != nullptr) ::uselocale(before);
}

}  // namespace detail

/// Returns the width of a text in terminal columns.
inline std::size_t columns_of(std::string_view text) {
  std::size_t sum = 0;
  detail::for_each_character(text, [&](std::string_view, std::size_t columns) { sum += columns; });
  return sum;
}

/// Returns the lines of the text, each at most `width` columns wide. Breaks the text between words, and
/// inside a word that is wider than a line.
inline Names broken(std::string_view text, std::size_t width) {
  Names lines(1);
  std::size_t used = 0;
  for (std::size_t begin = 0; begin <= text.size();) {
    std::size_t const end = std::min(text.find(' ', begin), text.size());
    std::string_view const word = text.substr(begin, end - begin);
    std::size_t const columns = columns_of(word);
    bool const fits = used + 1 + columns <= width;
    if (begin > 0 && fits) {
      lines.back() += ' ';
      ++used;
    } else if (used > 0) {
      lines.emplace_back();
      used = 0;
    }
    detail::for_each_character(word, [&](std::string_view letter, std::size_t wide) {
      if (used > 0 && used + wide > width) {
        lines.emplace_back();
        used = 0;
      }
      lines.back() += letter;
      used += wide;
    });
    begin = end + 1;
  }
  return lines;
}

/// Returns the text, padded with spaces to `width` columns: on the left if `right` is true, else on the
/// right.
inline std::string padded(std::string const& text, std::size_t width, bool right = false) {
  std::string const gap(width - std::min(width, columns_of(text)), ' ');
  return right ? gap + text : text + gap;
}

/// Formats a duration: "0.034 s", "2.4 s", "17 s", "2:05", "1:02:03". Below 9.95 s, it has two significant
/// digits.
inline std::string duration_text(double seconds) {
  char text[32];
  if (seconds < 9.95) {
    std::snprintf(text, sizeof text, "%.2g s", std::max(0.0, seconds));
    return text;
  }
  auto const whole = static_cast<std::int64_t>(seconds + 0.5);
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3600)
    std::snprintf(text, sizeof text, "%d:%02d min", static_cast<int>(whole / 60),
                  static_cast<int>(whole % 60));
  else
    std::snprintf(text, sizeof text, "%lld:%02d:%02d h", static_cast<long long>(whole / 3600),
                  static_cast<int>(whole / 60 % 60), static_cast<int>(whole % 60));
  return text;
}

/// A progress bar that is redrawn in place on a terminal, at most ten times a second. Draws nothing if the
/// stream is not a terminal. Example:
///   zs2_fp16 [=====>     ] 37%, 74/200 | 7,282 tok/s | ETA 17 s | loss 3.24
class Progress {
 public:
  Progress(std::ostream& out, Terminal terminal) : out_(out), terminal_(terminal) {}
  Progress(Progress const&) = delete;
  Progress& operator=(Progress const&) = delete;
  ~Progress() { clear(); }

  bool interactive() const { return terminal_.interactive; }

  /// Starts a bar with this label, at 0 of `total`.
  void start(std::string label, std::int64_t total) {
    label_ = std::move(label);
    total_ = total;
    began_ = Clock::now();
    drawn_ = {};
  }
  /// Redraws the bar. `done` counts towards the `total` of `start`. `left` is the time in seconds of the work
  /// that follows this bar; the ETA includes it.
  void show(std::int64_t done, double tokens_per_second, std::string_view note = {}, double left = 0.0) {
    if (!terminal_.interactive) return;
    auto const now = Clock::now();
    if (done < total_ && now - drawn_ < std::chrono::milliseconds(100)) return;
    drawn_ = now;
    double const elapsed = std::chrono::duration<double>(now - began_).count();
    Names parts = {std::to_string(total_ > 0 ? 100 * done / total_ : 100) + "%, " + std::to_string(done) +
                   "/" + std::to_string(total_)};
    if (tokens_per_second > 0.0)
      parts.push_back(grouped(static_cast<std::int64_t>(tokens_per_second)) + " tok/s");
    if (done > 0)
      parts.push_back(
          "ETA " +
          duration_text(elapsed / static_cast<double>(done) * static_cast<double>(total_ - done) + left));
    if (!note.empty()) parts.emplace_back(note);
    // If the bar is wider than the terminal, the last parts are left out.
    auto const cells_left = [&] {
      return terminal_.width - 4 - static_cast<int>(columns_of(label_ + joined(parts, " | ")));
    };
    while (parts.size() > 1 && cells_left() < 4) parts.pop_back();
    std::string line = label_ + " [";
    int const bar_cells = std::clamp(cells_left() - 1, 4, 40);
    int const full = total_ > 0 ? static_cast<int>(bar_cells * done / total_) : bar_cells;
    for (int cell = 0; cell < bar_cells; ++cell) line += cell < full ? '=' : cell == full ? '>' : ' ';
    line = broken(line + "] " + joined(parts, " | "), static_cast<std::size_t>(terminal_.width - 1)).front();
    out_ << '\r' << line << "\033[K" << std::flush;
    shown_ = true;
  }
  /// Removes the bar so that a line can be printed.
  void clear() {
    if (!shown_) return;
    out_ << "\r\033[K" << std::flush;
    shown_ = false;
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::ostream& out_;
  Terminal terminal_;
  std::string label_;
  std::int64_t total_ = 0;
  Clock::time_point began_ = Clock::now();
  Clock::time_point drawn_{};
  bool shown_ = false;
};

/// A box of settings and their origins:
///   +-- compare ---------------------------+
///   | ranks     4                  default |
class Box {
 public:
  explicit Box(std::string title) : title_(std::move(title)) {}
  /// Adds a line with the name and value of a setting. `origin` is the source of the value: default, flag,
  /// derived, data, ...
  void add(std::string name, std::string value, std::string origin) {
    lines_.push_back({std::move(name), std::move(value), std::move(origin)});
  }
  /// Returns the box as text, at most `width` columns wide (0: no limit). A cell that is too long continues
  /// on the next line.
  std::string text(int width = 0) const {
    std::size_t name = 0, value = 0, origin = 0;
    for (auto const& line : lines_) {
      name = std::max(name, columns_of(line.name));
      value = std::max(value, columns_of(line.value));
      origin = std::max(origin, columns_of(line.origin));
    }
    constexpr std::size_t gaps = 6;
    std::size_t inner = std::max(name + value + origin, title_.size()) + gaps;
    if (width > 0 && inner + 2 > static_cast<std::size_t>(width)) {
      inner = static_cast<std::size_t>(std::max(width, 20)) - 2;
      name = std::min(name, (inner - gaps) / 3);
      origin = std::min(origin, (inner - gaps - name) / 3);
      value = inner - gaps - name - origin;
    }
    std::string out = "+-- " + title_ + " " + std::string(inner - title_.size() - 4, '-') + "+\n";
    for (auto const& line : lines_) {
      Names names = broken(line.name, name), values = broken(line.value, value),
            origins = broken(line.origin, origin);
      std::size_t const rows = std::max({names.size(), values.size(), origins.size()});
      for (Names* cells : {&names, &values, &origins}) cells->resize(rows);
      for (std::size_t row = 0; row < rows; ++row) {
        std::string const left = " " + padded(names[row], name) + "  " + values[row] + " ";
        out += "|" + left + padded(origins[row], inner - columns_of(left) - 1, true) + " |\n";
      }
    }
    return out + "+" + std::string(inner, '-') + "+\n";
  }

 private:
  struct Line {
    std::string name, value, origin;
  };
  std::string title_;
  std::vector<Line> lines_;
};

/// Returns the text in lines of at most `width` columns (0: one line). Breaks lines only at spaces, so a wide
/// word makes a wider line.
inline std::string wrapped(std::string const& text, int width) {
  std::string out;
  std::size_t column = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t const end = std::min(text.find(' ', begin), text.size());
    std::size_t const columns = columns_of(std::string_view(text).substr(begin, end - begin));
    if (column > 0) {
      bool const fits = width <= 0 || column + 1 + columns <= static_cast<std::size_t>(width);
      out += fits ? ' ' : '\n';
      column = fits ? column + 1 : 0;
    }
    out.append(text, begin, end - begin);
    column += columns;
    begin = end + 1;
  }
  return out;
}

/// Returns a line for the user that begins with `columns`, the headers of the table columns that do not fit
/// the terminal. It ends with `elsewhere`, a text that names the output with all columns. Returns an empty
/// text if `columns` is empty.
inline std::string left_out_text(Names const& columns, Terminal const& terminal,
                                 std::string const& elsewhere) {
  if (columns.empty()) return {};
  return wrapped("columns that do not fit the terminal: " + joined(columns) + "; " + elsewhere,
                 terminal.width) +
         "\n";
}

/// A table with aligned columns. Headings separate its groups of rows. On a narrow terminal it leaves out the
/// least important columns; of several equally important columns, the rightmost first.
class Table {
 public:
  struct Column {
    std::string header;  ///< one or two lines
    bool right = true;
    int importance = 1;
    std::size_t width = 0;  ///< the minimum width in terminal columns
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  void heading(std::string text) { lines_.push_back({Kind::heading, {}, std::move(text), {}}); }
  /// Adds a row. If `marked[i]` is true, cell i is one of the best values of its column and is printed in
  /// bold.
  void row(Names cells, std::vector<bool> marked = {}) {
    marked.resize(columns_.size(), false);
    cells.resize(columns_.size());
    for (std::size_t i = 0; i < cells.size(); ++i)
      if (columns_[i].right) cells[i] += marked[i] ? "*" : " ";
    lines_.push_back({Kind::row, std::move(cells), {}, std::move(marked)});
  }
  /// Adds a row whose last cells are replaced by one text.
  void text_row(Names cells, std::string text) {
    lines_.push_back({Kind::text, std::move(cells), std::move(text), {}});
  }

  /// Returns the headers of the columns that do not fit the terminal.
  Names left_out(Terminal const& terminal) const {
    std::vector<bool> const shown = visible(widths(), terminal.width);
    Names names;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (shown[i]) continue;
      names.push_back(columns_[i].header);
      std::replace(names.back().begin(), names.back().end(), '\n', ' ');
    }
    return names;
  }

  /// Returns the table as text. If `headed` is false, the text has no header, so that its rows continue a
  /// table that was printed before.
  std::string text(Terminal const& terminal, bool headed = true) const {
    std::vector<std::size_t> const widths = this->widths();
    std::vector<bool> const shown = visible(widths, terminal.width);
    std::string out;
    auto const cell = [&](std::size_t i, std::string const& value, bool bold) {
      std::string const text = padded(value, widths[i], columns_[i].right);
      return (bold ? terminal.bold(text) : text) + " ";
    };
    auto const finish = [&](std::string line) {
      while (!line.empty() && line.back() == ' ') line.pop_back();
      out += line + "\n";
    };
    auto const head = [&] {
      std::array<std::string, 2> lines;
      for (std::size_t i = 0; i < columns_.size(); ++i)
        for (std::size_t line = 0; shown[i] && line < 2; ++line)
          lines[line] += cell(i, header_line(i, line) + (columns_[i].right ? " " : ""), false);
      if (lines[0].find_first_not_of(' ') != std::string::npos) finish(lines[0]);
      finish(lines[1]);
    };
    for (auto const& line : lines_) {
      if (line.kind == Kind::heading) {
        std::string text = wrapped(line.text, terminal.width);
        out += (out.empty() ? "" : "\n") + terminal.bold(text) + "\n";
        head();
        continue;
      }
      if (out.empty() && headed) head();
      std::string text;
      for (std::size_t i = 0; i < line.cells.size(); ++i)
        if (shown[i]) text += cell(i, line.cells[i], line.kind == Kind::row && line.marked[i]);
      finish(line.kind == Kind::text ? text + terminal.red(line.text) : text);
    }
    return out;
  }

 private:
  enum class Kind { heading, row, text };
  struct Line {
    Kind kind;
    Names cells;
    std::string text;
    std::vector<bool> marked;
  };

  /// Returns line 0 or 1 of a column's two-line header. A header of one line is on line 1, the lower one.
  std::string header_line(std::size_t column, std::size_t line) const {
    std::string const& header = columns_[column].header;
    std::size_t const end = header.find('\n');
    if (end == header.npos) return line == 1 ? header : std::string();
    return line == 0 ? header.substr(0, end) : header.substr(end + 1);
  }

  std::vector<std::size_t> widths() const {
    std::vector<std::size_t> widths;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      std::size_t const header = std::max(header_line(i, 0).size(), header_line(i, 1).size());
      std::size_t width = std::max(header + (columns_[i].right ? 1 : 0), columns_[i].width);
      for (auto const& line : lines_)
        if (i < line.cells.size()) width = std::max(width, columns_of(line.cells[i]));
      widths.push_back(width);
    }
    return widths;
  }

  std::vector<bool> visible(std::vector<std::size_t> const& widths, int limit) const {
    std::vector<bool> shown(columns_.size(), true);
    auto const total = [&] {
      std::size_t sum = 0;
      for (std::size_t i = 0; i < widths.size(); ++i) sum += shown[i] ? widths[i] + 1 : 0;
      return sum;
    };
    while (limit > 0 && total() > static_cast<std::size_t>(limit) + 1) {
      std::size_t least = columns_.size();
      for (std::size_t i = 0; i < columns_.size(); ++i)
        if (shown[i] && (least == columns_.size() || columns_[i].importance <= columns_[least].importance))
          least = i;
      if (least == columns_.size() || columns_[least].importance >= 100) break;
      shown[least] = false;
    }
    return shown;
  }

  std::vector<Column> columns_;
  std::vector<Line> lines_;
};

}  // namespace cli
}  // namespace programs
