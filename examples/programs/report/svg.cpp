// SPDX-License-Identifier: Apache-2.0
// Implements the escaping of text and the elements of SVG.
#include "report/svg.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>

namespace programs {
namespace reporting {

namespace {

/// Returns the length in bytes of the UTF-8 character at the start of `text`; 0 if it is invalid.
std::size_t letter_bytes(std::string_view text) {
  auto const byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  unsigned char const first = byte(0);
  if (first < 0x80) return 1;
  std::size_t const count = first >= 0xc2 && first < 0xe0   ? 2
                            : first >= 0xe0 && first < 0xf0 ? 3
                            : first >= 0xf0 && first < 0xf5 ? 4
                                                            : 0;
  if (count == 0 || text.size() < count) return 0;
  std::uint32_t code = first & (0x7fU >> count);
  for (std::size_t at = 1; at < count; ++at) {
    if ((byte(at) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(at) & 0x3fU);
  }
  bool const overlong = (count == 3 && code < 0x800) || (count == 4 && code < 0x10000);
  bool const no_letter =
      (code >= 0xd800 && code < 0xe000) || code == 0xfffe || code == 0xffff || code > 0x10ffff;
  return overlong || no_letter ? 0 : count;
}

/// Returns the estimated width of a character in the font Arial, as a fraction of the font size. `first` is
/// its first byte, `bytes` its number of bytes in UTF-8.
double ems_of(char first, std::size_t bytes) {
  auto const byte = static_cast<unsigned char>(first);
  if (bytes > 2 || byte < 0x20 || byte == 0x7f || (bytes == 1 && byte > 0x7f))
    return 1.0;  // wide characters, and invalid ones, which are drawn as U+FFFD
  if (std::string_view("ijl.,:;'|! ()[]ft/").find(first) != std::string_view::npos) return 0.29;
  if (std::string_view("mwMW%@").find(first) != std::string_view::npos) return 0.85;
  return first >= 'A' && first <= 'Z' ? 0.7 : 0.56;
}

/// Returns the text without its last UTF-8 character.
std::string without_last(std::string text) {
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xc0) == 0x80) text.pop_back();
  if (!text.empty()) text.pop_back();
  return text;
}

std::string tip_text(std::string const& tip) {
  return tip.empty() ? std::string() : "<title>" + escaped(tip) + "</title>";
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    std::size_t const count = letter_bytes(text);
    char const c = text.front();
    if (count == 0 ||
        (count == 1 && ((static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n') || c == 0x7f)))
      out += "\xEF\xBF\xBD";
    else if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\'')
      out += "&#39;";
    else
      out.append(text.substr(0, count));
    text.remove_prefix(count == 0 ? 1 : count);
  }
  return out;
}

double text_width(std::string_view text, double size) {
  double ems = 0.0;
  while (!text.empty()) {
    std::size_t const bytes = std::max<std::size_t>(1, letter_bytes(text));
    ems += ems_of(text.front(), bytes);
    text.remove_prefix(bytes);
  }
  return 1.1 * size * ems;
}

std::vector<std::string> text_lines(std::string const& text, double width, std::size_t most, double size) {
  std::vector<std::string> lines(1);
  std::size_t space = 0;  // the last space at which the current line may be broken
  double wide = 0.0;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t const bytes = std::max<std::size_t>(1, letter_bytes(std::string_view(text).substr(at)));
    double const letter = 1.1 * size * ems_of(text[at], bytes);
    if (wide + letter > width && !lines.back().empty()) {
      if (lines.size() == std::max<std::size_t>(1, most)) {
        lines.back() = without_last(without_last(lines.back())) + "\xE2\x80\xA6";
        return lines;
      }
      std::string rest = space > 0 ? lines.back().substr(space) : std::string();
      if (space > 0) lines.back().resize(space - 1);
      wide = text_width(rest, size);
      lines.push_back(std::move(rest));
      space = 0;
    }
    lines.back().append(text, at, bytes);
    wide += letter;
    if (text[at] == ' ') space = lines.back().size();
    at += bytes;
  }
  return lines;
}

std::string style_number(std::size_t series) { return std::to_string(series % 6 + 1); }

std::string coordinate(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", std::isfinite(value) ? value : 0.0);
  std::string digits = text;
  while (digits.ends_with('0')) digits.pop_back();
  if (digits.ends_with('.')) digits.pop_back();
  return digits == "-0" ? "0" : digits;
}

void Svg::rect(double x, double y, double width, double height, std::string_view style,
               std::string const& tip, double opacity) {
  body_ += "<rect x='" + coordinate(x) + "' y='" + coordinate(y) + "' width='" + coordinate(width) +
           "' height='" + coordinate(height) + "' class='";
  body_.append(style);
  if (opacity < 1.0) body_ += "' fill-opacity='" + coordinate(opacity);
  body_ += tip.empty() ? "'/>" : "'>" + tip_text(tip) + "</rect>";
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view style) {
  body_ += "<line x1='" + coordinate(x1) + "' y1='" + coordinate(y1) + "' x2='" + coordinate(x2) + "' y2='" +
           coordinate(y2) + "' class='";
  body_.append(style) += "'/>";
}

void Svg::path(std::vector<Spot> const& spots, std::string_view style, bool closed) {
  if (spots.empty()) return;
  body_ += "<path d='";
  for (std::size_t at = 0; at < spots.size(); ++at)
    body_ += (at == 0 ? "M" : at == 1 ? "L" : " ") + coordinate(spots[at].x) + "," + coordinate(spots[at].y);
  body_ += closed ? "Z' class='" : "' class='";
  body_.append(style) += "'/>";
}

void Svg::mark(Spot at, std::size_t series, bool hollow, std::string const& tip, double size) {
  std::string const number = style_number(series);
  std::string const style = hollow ? "hollow s" + number : "f" + number;
  std::string const end = "' class='" + style + (tip.empty() ? "'/>" : "'>" + tip_text(tip));
  auto const shape = [&](std::vector<Spot> const& corners) {
    body_ += "<path d='";
    for (std::size_t corner = 0; corner < corners.size(); ++corner)
      body_ += (corner == 0   ? "M"
                : corner == 1 ? "L"
                              : " ") +
               coordinate(at.x + size * corners[corner].x) + "," +
               coordinate(at.y + size * corners[corner].y);
    body_ += "Z" + end + (tip.empty() ? "" : "</path>");
  };
  switch (series % 6) {
    case 1:
      return shape({{-0.95, -0.95}, {0.95, -0.95}, {0.95, 0.95}, {-0.95, 0.95}});
    case 2:
      return shape({{0.0, -1.25}, {1.15, 0.9}, {-1.15, 0.9}});
    case 3:
      return shape({{0.0, -1.3}, {1.3, 0.0}, {0.0, 1.3}, {-1.3, 0.0}});
    case 4:
      return shape({{-1.15, -0.9}, {1.15, -0.9}, {0.0, 1.25}});
    case 5:
      return shape({{-1.2, -0.45}, {1.2, -0.45}, {1.2, 0.45}, {-1.2, 0.45}});
    default:
      body_ += "<circle cx='" + coordinate(at.x) + "' cy='" + coordinate(at.y) + "' r='" + coordinate(size) +
               end + (tip.empty() ? "" : "</circle>");
  }
}

void Svg::text(double x, double y, std::string const& words, std::string_view style,
               std::string_view anchor) {
  body_ += "<text x='" + coordinate(x) + "' y='" + coordinate(y) + "'";
  if (!style.empty()) (body_ += " class='").append(style) += "'";
  if (anchor != "start") (body_ += " text-anchor='").append(anchor) += "'";
  body_ += ">" + escaped(words) + "</text>";
}

std::string Svg::finish(std::string const& title) const {
  std::string const width = coordinate(width_), height = coordinate(height_);
  return "<svg xmlns='http://www.w3.org/2000/svg' width='" + width + "' height='" + height +
         "' viewBox='0 0 " + width + " " + height + "' role='img' aria-label='" + escaped(title) + "'>" +
         body_ + "</svg>";
}

}  // namespace reporting
}  // namespace programs
