// SPDX-License-Identifier: Apache-2.0
// Escapes text for HTML and SVG. The class Svg builds the elements of one figure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace programs {
namespace reporting {

/// Returns text that HTML, SVG and their attributes may contain: `& < > " '` become entities. Control
/// characters and invalid UTF-8, which XML cannot contain, become U+FFFD.
std::string escaped(std::string_view text);
/// Returns the estimated width of a text at the font size `size`. The estimate is rather too wide than too
/// narrow for the fonts that figures use.
double text_width(std::string_view text, double size = 12.0);
/// Returns the text in lines of at most `width`, broken at spaces if possible. Text after `most` lines is cut
/// and replaced by an ellipsis. There is at least one line.
std::vector<std::string> text_lines(std::string const& text, double width, std::size_t most,
                                    double size = 12.0);
/// Returns the number of a series in the names of CSS classes, "1" to "6". The classes with this number set
/// the colour and the dashes of the series.
std::string style_number(std::size_t series);
/// Returns a coordinate as text with at most two decimals.
std::string coordinate(double value);

struct Spot {
  double x = 0.0, y = 0.0;
};

/// Builds one figure as SVG. Its colours are CSS classes of style.hpp: f1 to f6 fill, s1 to s6 stroke, d1 to
/// d6 dash.
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
  /// Draws one of six point marks at the position `at`. The marks differ in shape and in colour. `hollow`
  /// draws only the outline, `tip` is the tooltip.
  void mark(Spot at, std::size_t series, bool hollow, std::string const& tip = {}, double size = 3.5);
  /// Draws text at (x, y). `anchor` says which part of the text is at x: start, middle or end.
  void text(double x, double y, std::string const& words, std::string_view style = "",
            std::string_view anchor = "start");
  /// Returns the complete SVG element. `title` is its tooltip.
  std::string finish(std::string const& title) const;

 private:
  double width_, height_ = 0.0;
  std::string body_;
};

}  // namespace reporting
}  // namespace programs
