// SPDX-License-Identifier: Apache-2.0
// Provides TCP connections that transfer frames. A frame is a message with a type and fields, which are
// numbers and texts.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "tessera/config.hpp"
#include "tessera/core/descriptor.hpp"
#include "tessera/core/error.hpp"
#include "tessera/detail/clock.hpp"

namespace tessera {
inline namespace v0 {
namespace comm {
namespace detail {

using files::Descriptor;

/// Builds a frame: `number` and `text` append a field.
class FrameWriter {
 public:
  explicit FrameWriter(std::uint8_t type) : bytes_(5, '\0') { bytes_[4] = static_cast<char>(type); }

  FrameWriter& number(std::uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) bytes_ += static_cast<char>(value >> shift & 0xffu);
    return *this;
  }
  FrameWriter& text(std::string_view value) {
    number(value.size());
    bytes_ += value;
    return *this;
  }
  /// Returns the frame as bytes: the size of the rest in 4 bytes, the type in 1 byte, and the fields.
  std::string done() {
    std::size_t const size = bytes_.size() - 4;
    for (std::size_t i = 0; i < 4; ++i) bytes_[i] = static_cast<char>(size >> (8 * i) & 0xffu);
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
};

/// Reads the fields of a frame in their order. If the frame has no field left, `number` returns 0 and `text`
/// returns an empty text, and `good` returns false from then on.
class FrameReader {
 public:
  FrameReader() = default;
  explicit FrameReader(std::string bytes) : bytes_(std::move(bytes)) {}

  std::uint8_t type() const { return bytes_.empty() ? 0 : static_cast<std::uint8_t>(bytes_[0]); }
  bool good() const { return good_; }
  bool at_end() const { return at_ == bytes_.size(); }
  std::uint64_t number() {
    std::string_view const from = take(8);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < from.size(); ++i)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(from[i])) << (8 * i);
    return value;
  }
  std::string text() {
    std::uint64_t const size = number();
    return std::string(take(size));
  }

 private:
  std::string_view take(std::uint64_t size) {
    good_ = good_ && size <= bytes_.size() - at_;
    if (!good_) return {};
    std::string_view const taken = std::string_view(bytes_).substr(at_, size);
    at_ += size;
    return taken;
  }

  std::string bytes_;
  std::size_t at_ = 1;
  bool good_ = true;
};

/// A non-blocking TCP connection that transfers frames. If the system does not accept a frame yet, the object
/// keeps the frame in memory. The number of kept frames has no limit.
class Connection {
 public:
  Connection() = default;
  explicit Connection(Descriptor socket) : socket_(std::move(socket)) {
    ::fcntl(socket_.get(), F_SETFL, ::fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
    int const on = 1;
    ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  }

  int socket() const noexcept { return socket_.get(); }
  bool open() const noexcept { return static_cast<bool>(socket_) && !ended_; }
  bool has_output() const noexcept { return !output_.empty(); }
  /// Returns the events for which the caller should poll the socket.
  short events() const noexcept { return static_cast<short>(POLLIN | (has_output() ? POLLOUT : 0)); }

  void send(std::string const& frame) {
    output_ += frame;
    flush();
  }
  /// Sends as many of the waiting bytes as the system accepts without waiting.
  void flush() {
    while (open() && has_output()) {
      ssize_t const sent = ::send(socket_.get(), output_.data(), output_.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (sent < 0) ended_ = true;
      if (sent > 0) output_.erase(0, static_cast<std::size_t>(sent));
    }
  }
  /// Reads all bytes that have arrived. If the connection has ended, `take` still returns the frames that
  /// arrived before.
  void receive() {
    char bytes[16384];
    while (open()) {
      ssize_t const got = ::recv(socket_.get(), bytes, sizeof bytes, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (got <= 0)
        ended_ = true;
      else
        input_.append(bytes, static_cast<std::size_t>(got));
    }
  }
  /// Stores the next frame that has arrived completely in `frame`, and removes it from the input. Returns
  /// false if there is no such frame. If a frame is empty or has more than 64 MiB, its sender uses another
  /// protocol, so ends the connection.
  bool take(FrameReader& frame) {
    if (input_.size() - at_ < 4) return false;
    std::size_t size = 0;
    for (std::size_t i = 0; i < 4; ++i)
      size |= static_cast<std::size_t>(static_cast<unsigned char>(input_[at_ + i])) << (8 * i);
    if (size == 0 || size > (std::size_t{64} << 20)) {
      ended_ = true;
      input_.clear();
      at_ = 0;
      return false;
    }
    if (input_.size() - at_ - 4 < size) return false;
    frame = FrameReader(input_.substr(at_ + 4, size));
    at_ += 4 + size;
    if (at_ == input_.size()) {
      input_.clear();
      at_ = 0;
    }
    return true;
  }

 private:
  Descriptor socket_;
  std::string input_;
  std::string output_;
  std::size_t at_ = 0;
  bool ended_ = false;
};

/// Returns an address in digits, such as "10.0.0.7", or an empty text if it is not an IP address.
inline std::string numeric_address(sockaddr const* address) {
  if (!address || (address->sa_family != AF_INET && address->sa_family != AF_INET6)) return {};
  socklen_t const size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  char text[NI_MAXHOST] = {};
  if (::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text;
}
/// Returns the address, in digits, of one end of the TCP connection `socket`: the peer's address if `of_peer`
/// is true, otherwise the address of this process.
inline std::string end_address(int socket, bool of_peer) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* const address = reinterpret_cast<sockaddr*>(&storage);
  int const status = of_peer ? ::getpeername(socket, address, &size) : ::getsockname(socket, address, &size);
  return status == 0 ? numeric_address(address) : std::string();
}

/// Calls body(interface, address in digits) for each IP address of this host's network interfaces that are
/// up, IPv4 first. Leaves out addresses that are valid on one link only.
template <class Body>
void each_interface(Body const& body) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return;
  std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> const owner(list, &::freeifaddrs);
  for (int const family : {AF_INET, AF_INET6})
    for (ifaddrs const* at = list; at; at = at->ifa_next) {
      if (!at->ifa_addr || at->ifa_addr->sa_family != family || !(at->ifa_flags & IFF_UP)) continue;
      if (family == AF_INET6 &&
          IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<sockaddr_in6 const&>(*at->ifa_addr).sin6_addr))
        continue;
      body(*at, numeric_address(at->ifa_addr));
    }
}
/// Returns the name of the network interface that has an address in digits, or an empty text.
inline std::string interface_of(std::string const& address) {
  std::string name;
  each_interface([&](ifaddrs const& interface, std::string const& other) {
    if (name.empty() && other == address) name = interface.ifa_name;
  });
  return name;
}

/// Returns a non-blocking socket that listens on a port of all network interfaces, IPv6 and IPv4. Port 0
/// means any free port. If the port is not available, returns an empty descriptor and sets errno.
inline Descriptor listen_on(int port) {
  for (int const family : {AF_INET6, AF_INET}) {
    Descriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) continue;
    int const on = 1, off = 0;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in6 six{};
    sockaddr_in four{};
    six.sin6_family = AF_INET6;
    four.sin_family = AF_INET;
    six.sin6_port = four.sin_port = htons(static_cast<std::uint16_t>(port));
    if (family == AF_INET6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    int const bound = family == AF_INET6
                          ? ::bind(socket.get(), reinterpret_cast<sockaddr const*>(&six), sizeof six)
                          : ::bind(socket.get(), reinterpret_cast<sockaddr const*>(&four), sizeof four);
    if (bound == 0 && ::listen(socket.get(), 1024) == 0) return socket;
    if (errno == EADDRINUSE) break;
  }
  return Descriptor();
}

/// The addresses of a host name, in the order in which to try them.
class Addresses {
 public:
  /// `own_host` is the name of this host, for error messages. Throws Error(config) with the rank 0 if the
  /// name `host` cannot be resolved.
  Addresses(std::string host, std::string const& own_host) : host_(std::move(host)) {
    if (host_.size() > 2 && host_.front() == '[' && host_.back() == ']')
      host_ = host_.substr(1, host_.size() - 2);
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    int const status = ::getaddrinfo(host_.c_str(), nullptr, &hints, &list_);
    if (status != 0)
      throw_error(
          ErrorKind::config,
          {"the host name '", host_, "' of rank 0 cannot be resolved on ", own_host, ": ",
           ::gai_strerror(status), "; set MASTER_ADDR to an address or to a name that ", own_host, " knows"},
          0);
  }
  Addresses(Addresses const&) = delete;
  Addresses& operator=(Addresses const&) = delete;
  ~Addresses() {
    if (list_) ::freeaddrinfo(list_);
  }

  /// Returns whether the host is this host: whether a socket can be bound to one of the addresses.
  bool are_here() const {
    for (addrinfo const* at = list_; at; at = at->ai_next) {
      Descriptor const socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (socket && ::bind(socket.get(), at->ai_addr, at->ai_addrlen) == 0) return true;
    }
    return false;
  }

  /// Connects to a port of the host, and returns the socket. Tries the addresses one after another, each for
  /// at most `timeout`. If none of them answers, returns an empty descriptor and sets `error` to the errno of
  /// the last attempt.
  Descriptor connect(int port, std::chrono::milliseconds timeout, int& error) const {
    for (addrinfo const* at = list_; at; at = at->ai_next) {
      Descriptor socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (!socket) {
        error = errno;
        continue;
      }
      sockaddr_storage address{};
      std::memcpy(&address, at->ai_addr, at->ai_addrlen);
      auto const number = htons(static_cast<std::uint16_t>(port));
      if (at->ai_family == AF_INET6)
        reinterpret_cast<sockaddr_in6*>(&address)->sin6_port = number;
      else
        reinterpret_cast<sockaddr_in*>(&address)->sin_port = number;
      error = 0;
      if (::connect(socket.get(), reinterpret_cast<sockaddr const*>(&address), at->ai_addrlen) != 0)
        error = errno;
      if (error == EINPROGRESS) {
        pollfd waiting{socket.get(), POLLOUT, 0};
        error = ETIMEDOUT;
        socklen_t size = sizeof error;
        if (::poll(&waiting, 1, static_cast<int>(timeout.count())) == 1)
          ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      }
      if (error == 0 && !connects_to_itself(socket.get())) return socket;
    }
    return Descriptor();
  }

 private:
  /// Returns whether a socket is connected to itself. This can happen if a program connects to an unused port
  /// of its own host: the system may choose the same port for the program's end of the connection.
  static bool connects_to_itself(int socket) {
    sockaddr_storage own{}, other{};
    socklen_t size = sizeof own, other_size = sizeof other;
    return ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
           ::getpeername(socket, reinterpret_cast<sockaddr*>(&other), &other_size) == 0 &&
           size == other_size && std::memcmp(&own, &other, size) == 0;
  }

  std::string host_;
  addrinfo* list_ = nullptr;
};

}  // namespace detail
}  // namespace comm
}  // namespace v0
}  // namespace tessera
