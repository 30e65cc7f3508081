// SPDX-License-Identifier: Apache-2.0
// Text for HTML and SVG, and the elements of a figure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace programs {
namespace reporting {

/// Text as it may stand in HTML, SVG and their attributes: `& < > " '` are entities; what XML cannot hold
/// (control characters, bytes that are no UTF-8) is U+FFFD.
std::string escaped(std::string_view text);
/// How wide text is at this size of letters: rather too much than too little in the fonts that figures name.
double text_width(std::string_view text, double size = 12.0);
/// Text in lines of this width, broken at spaces where it can be; what is beyond `most` lines ends in a dot
/// dot dot. At least one line.
std::vector<std::string> text_lines(std::string const& text, double width, std::size_t most,
                                    double size = 12.0);
/// Of a colour, a dash and so on: "1" to "6".
std::string style_number(std::size_t series);
/// A coordinate: at most two decimals.
std::string coordinate(double value);

struct Spot {
  double x = 0.0, y = 0.0;
};

/// One figure under construction. Colours are classes (`style.hpp`): f1..f6 fill, s1..s6 stroke, d1..d6 dash.
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
  /// One of six marks that differ in shape as in colour.
  void mark(Spot at, std::size_t series, bool hollow, std::string const& tip = {}, double size = 3.5);
  /// `anchor`: start, middle or end.
  void text(double x, double y, std::string const& words, std::string_view style = "",
            std::string_view anchor = "start");
  /// Ends in an element: what lies in it has this name when the mouse rests there.
  std::string finish(std::string const& title) const;

 private:
  double width_, height_ = 0.0;
  std::string body_;
};

}  // namespace reporting
}  // namespace programs
