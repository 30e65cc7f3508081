// SPDX-License-Identifier: Apache-2.0
// Escapes text for HTML and SVG, and builds the elements of a figure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace programs {
namespace reporting {

/// Escapes text for HTML, SVG and their attributes: `& < > " '` become entities. Bytes that XML cannot hold
/// (control characters, invalid UTF-8) become U+FFFD.
std::string escaped(std::string_view text);
/// Estimates the width of a text at a font size, rather too wide than too narrow for the fonts that figures
/// use.
double text_width(std::string_view text, double size = 12.0);
/// Wraps text into lines of this width, at spaces if possible. Text beyond `most` lines is cut and ends in
/// an ellipsis. Returns at least one line.
std::vector<std::string> text_lines(std::string const& text, double width, std::size_t most,
                                    double size = 12.0);
/// Returns the number in the CSS class of a series' colour or dash style: "1" to "6".
std::string style_number(std::size_t series);
/// Formats a coordinate with at most two decimals.
std::string coordinate(double value);

struct Spot {
  double x = 0.0, y = 0.0;
};

/// Builds one figure. Colours are classes (`style.hpp`): f1..f6 fill, s1..s6 stroke, d1..d6 dash.
class Svg {
 public:
  explicit Svg(double width) : width_(width) {}

  double width() const { return width_; }
  double height() const { return height_; }
  void grow(double height) { height_ = height; }

  void rect(double x, double y, double width, double height, std::string_view style,
            std::string const& tip = {}, double opacity = 1.0);
  void line(double x1, double y1, double x2, double y2, std::string_view style);
  void path(std::vector<Spot> const& spots, std::string_view style, bool closed = false);
  /// Draws one of six point marks, which differ in shape and in colour.
  void mark(Spot at, std::size_t series, bool hollow, std::string const& tip = {}, double size = 3.5);
  /// Draws text at (x, y). `anchor` says which part of it is at x: start, middle or end.
  void text(double x, double y, std::string const& words, std::string_view style = "",
            std::string_view anchor = "start");
  /// Closes the element. `title` is shown as its tooltip.
  std::string finish(std::string const& title) const;

 private:
  double width_, height_ = 0.0;
  std::string body_;
};

}  // namespace reporting
}  // namespace programs
