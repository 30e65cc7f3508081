// SPDX-License-Identifier: Apache-2.0
// Defines errors. An error has a kind, from which programs compute the exit code, and a message for the user.
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
  failed,  ///< the run could not finish, and no other kind applies
  usage,   ///< the command line or a call was wrong
  config,  ///< the settings contradict each other
  data,    ///< a data file, a weights file or a checkpoint is missing or damaged, or has a wrong format
  out_of_memory,  ///< the run needs more memory than is available; the message gives the bytes
  peer_lost,      ///< another rank threw an exception, died or did not arrive in time
  diverged,       ///< the loss is not finite
  unsupported     ///< the request is valid, but this build does not support it
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

/// Thrown by constructors, by functions that plan a run and by functions that read files. `what()` is the
/// error message. It says what is wrong, where, and what to do. `rank()` is the rank that the error concerns,
/// or -1. `unit()` is the part of the model that the error concerns, such as "h.3", or empty.
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

/// Thrown on the surviving ranks if a rank is lost. `rank()` is the rank that was lost. `unit()` is the part
/// of the model for which the throwing rank ran its last collective.
class PeerLost : public Error {
 public:
  PeerLost(std::string const& text, int lost_rank, std::string unit = {})
      : Error(ErrorKind::peer_lost, text, lost_rank, std::move(unit)) {}
};

/// One part of a message: text or a whole number. A Word refers to the text and does not copy it, so the text
/// must outlive the Word.
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
  char const* text_ = nullptr;  // null if the word is a number
  std::int64_t value_;          // the number; or the length of the text, or -1 if the text is null-terminated
};

/// Returns the concatenation of the words. The machine code of a call is small, because a call only builds a
/// list. With operator+, every call site would contain code for strings, mostly for errors that never happen.
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
