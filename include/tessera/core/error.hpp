// SPDX-License-Identifier: Apache-2.0
// Defines errors: a kind that programs turn into an exit code, and a sentence for the user.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/config.hpp"

namespace tessera {
inline namespace v0 {

/// The kind of an error. Programs exit with `exit_code(kind)`.
enum class ErrorKind {
  failed,         ///< a run that could not finish for another reason
  usage,          ///< the command line or a call was wrong
  config,         ///< the settings contradict each other
  data,           ///< a data file, a weights file or a checkpoint is missing, damaged or of another kind
  out_of_memory,  ///< the plan does not fit; the text gives the bytes
  peer_lost,      ///< another rank threw, died or did not arrive
  diverged,       ///< the loss is not finite
  unsupported     ///< a legal request that this build cannot serve
};

/// Returns the exit code of a program that ends with an error of this kind.
constexpr int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::failed:
      return 1;
    case ErrorKind::usage:
      return 2;
    case ErrorKind::config:
      return 3;
    case ErrorKind::unsupported:
      return 3;
    case ErrorKind::data:
      return 4;
    case ErrorKind::out_of_memory:
      return 5;
    case ErrorKind::peer_lost:
      return 6;
    case ErrorKind::diverged:
      return 7;
  }
  return 1;
}

/// Thrown by constructors, plans and file readers. `what()` says what is wrong, where, and what to do. `unit`
/// is a part of the model, such as "h.3". `rank` is -1 and `unit` is empty if they do not apply.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string const& text, int rank = -1, std::string unit = {})
      : std::runtime_error(text), kind_(kind), rank_(rank), unit_(std::move(unit)) {}

  ErrorKind kind() const noexcept { return kind_; }
  int rank() const noexcept { return rank_; }
  std::string const& unit() const noexcept { return unit_; }

 private:
  ErrorKind kind_;
  int rank_;
  std::string unit_;
};

/// Thrown by the surviving ranks. `rank()` is the rank that was lost. `unit()` is the part of the model in
/// the last collective of the rank that throws.
class PeerLost : public Error {
 public:
  PeerLost(std::string const& text, int lost_rank, std::string unit = {})
      : Error(ErrorKind::peer_lost, text, lost_rank, std::move(unit)) {}
};

/// A part of a message: a reference to text, or a whole number.
class Word {
 public:
  Word(char const* text) : text_(text), value_(-1) {}
  Word(std::string const& text) : text_(text.data()), value_(static_cast<std::int64_t>(text.size())) {}
  Word(std::string_view text)
      : text_(text.empty() ? "" : text.data()), value_(static_cast<std::int64_t>(text.size())) {}
  template <std::integral Number>
  Word(Number number) : value_(static_cast<std::int64_t>(number)) {}

  void append_to(std::string& sentence) const {
    char digits[24];
    if (!text_)
      sentence.append(digits, static_cast<std::size_t>(std::snprintf(digits, sizeof digits, "%lld",
                                                                     static_cast<long long>(value_))));
    else if (value_ < 0)
      sentence += text_;
    else
      sentence.append(text_, static_cast<std::size_t>(value_));
  }

 private:
  char const* text_ = nullptr;  // null: a number
  std::int64_t value_;          // the number, or the length of the text; -1: null-terminated
};

/// Concatenates the words. This keeps call sites small. With operator+, every call site would contain code
/// for strings, mostly for errors that never happen.
inline std::string sentence(std::initializer_list<Word> words) {
  std::string text;
  for (Word const& word : words) word.append_to(text);
  return text;
}

[[noreturn]] inline void throw_error(ErrorKind kind, std::initializer_list<Word> words, int rank = -1,
                                     std::string_view unit = {}) {
  throw Error(kind, sentence(words), rank, std::string(unit));
}

}  // namespace v0
}  // namespace tessera
