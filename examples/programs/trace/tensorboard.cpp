// SPDX-License-Identifier: Apache-2.0
// Writes event files of TensorBoard. A file consists of records. A record is the length of a message (8
// bytes, little endian), the masked CRC of these 8 bytes, the message, and the masked CRC of the message. A
// message is a protocol buffers message of type Event. The field numbers are from TensorFlow's event.proto,
// summary.proto and tensor.proto.
#include "trace/tensorboard.hpp"

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/file.hpp"

namespace programs {
using namespace tessera;
namespace cli {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

template <class Unsigned>
std::string little_endian(Unsigned value) {
  std::string bytes;
  for (std::size_t at = 0; at < sizeof value; ++at) bytes += static_cast<char>(value >> (8 * at) & 0xff);
  return bytes;
}

/// Builds the bytes of a protocol buffers message field by field.
class Message {
 public:
  Message& integer(std::uint64_t field, std::int64_t value) {
    varint(field << 3);
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  Message& real(std::uint64_t field, double value) {
    varint(field << 3 | 1);
    bytes_ += little_endian(std::bit_cast<std::uint64_t>(value));
    return *this;
  }
  Message& real(std::uint64_t field, float value) {
    varint(field << 3 | 5);
    bytes_ += little_endian(std::bit_cast<std::uint32_t>(value));
    return *this;
  }
  Message& text(std::uint64_t field, std::string_view value) {
    varint(field << 3 | 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(std::uint64_t field, Message const& value) { return text(field, value.bytes_); }
  std::string const& bytes() const { return bytes_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(detail::crc32c(bytes), 15) + 0xa282ead8u;
}

}  // namespace

std::uint32_t detail::crc32c(std::string_view bytes) {
  static constexpr auto table = [] {
    std::array<std::uint32_t, 256> made{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      made[byte] = byte;
      for (int bit = 0; bit < 8; ++bit) made[byte] = made[byte] >> 1 ^ (made[byte] & 1 ? 0x82f63b78u : 0u);
    }
    return made;
  }();
  std::uint32_t crc = ~0u;
  for (char const c : bytes) crc = crc >> 8 ^ table[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

EventFile::EventFile(std::filesystem::path const& folder, bool alone) : folder_(folder) {
  make_folder(folder_);
  if (alone) {
    lock_ = files::Descriptor(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (lock_) files::lock_for_run(lock_.get(), folder_);
  }
  std::array<char, 64> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {'h', 'o', 's', 't'};
  std::string const start = "events.out.tfevents." +
                            std::to_string(static_cast<std::int64_t>(seconds_now())) + "." + host.data() +
                            "." + std::to_string(::getpid());
  for (int attempt = 0; attempt < 100 && !file_; ++attempt) {
    path_ = folder / (start + "." + std::to_string(attempt));
    file_ =
        files::Descriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
    if (!file_ && errno != EEXIST) break;
  }
  if (!file_) files::file_error(folder_, "create an event file in it", errno);
  put(Message().real(1, seconds_now()).text(3, "brain.Event:2").bytes());
}

void EventFile::scalars(std::int64_t step, std::vector<std::pair<std::string, double>> const& values) {
  Message summary;
  for (auto const& [tag, value] : values)
    if (std::isfinite(value)) summary.message(1, Message().text(1, tag).real(2, static_cast<float>(value)));
  put(Message().real(1, seconds_now()).integer(2, step).message(5, summary).bytes());
}

void EventFile::text(std::string const& tag, std::string const& markdown) {
  constexpr std::int64_t string_type = 7;
  Message const plugin = Message().message(1, Message().text(1, "text"));
  Message const shape = Message().message(2, Message().integer(1, 1));
  Message const tensor = Message().integer(1, string_type).message(2, shape).text(8, markdown);
  Message const value = Message().text(1, tag).message(9, plugin).message(8, tensor);
  put(Message().real(1, seconds_now()).message(5, Message().message(1, value)).bytes());
}

void EventFile::put(std::string const& event) {
  std::string record = little_endian(static_cast<std::uint64_t>(event.size()));
  record += little_endian(masked_crc(record)) + event + little_endian(masked_crc(event));
  try {
    files::write_all(file_.get(), record.data(), record.size(), folder_);
    bytes_ += static_cast<::off_t>(record.size());
  } catch (Error const&) {
    (void)!::ftruncate(file_.get(), bytes_);  // removes the incomplete record
    throw;
  }
}

}  // namespace cli
}  // namespace programs
