// SPDX-License-Identifier: Apache-2.0
// Defines Descriptor, an object that owns an open file or socket. Its destructor closes the file or socket.
#pragma once

#include <unistd.h>
#include <utility>

#include "tessera/config.hpp"

namespace tessera {
inline namespace v0 {
namespace files {

/// An open file descriptor. The destructor closes it. If the number is negative, the object owns no open
/// file.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) noexcept : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }

  int get() const noexcept { return number_; }
  int release() noexcept { return std::exchange(number_, -1); }
  explicit operator bool() const noexcept { return number_ >= 0; }

 private:
  int number_;
};

}  // namespace files
}  // namespace v0
}  // namespace tessera
