// SPDX-License-Identifier: Apache-2.0
#include "prepare/token_writer.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/io/file.hpp"

namespace programs {
using namespace tessera;
namespace cli {

namespace {

constexpr std::size_t header_bytes = 1024, buffer_bytes = 1 << 20;

std::string digits_of(XXH3_state_t const& state) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
  char text[33];
  for (std::size_t i = 0; i < 16; ++i) std::snprintf(text + 2 * i, 3, "%02x", canonical.digest[i]);
  return text;
}

/// Adds bytes of a file to the hash `state`: `size` bytes from byte `offset` on, or fewer if the file ends
/// before. Returns the number of bytes added. `name` is for messages.
std::size_t hash_range(int file, std::size_t offset, std::size_t size, XXH3_state_t& state,
                       std::string const& name) {
  std::string block(buffer_bytes, '\0');
  std::size_t done = 0;
  while (done < size) {
    std::size_t const got =
        files::read_all(file, offset + done, block.data(), std::min(block.size(), size - done), name);
    if (got == 0) break;
    XXH3_128bits_update(&state, block.data(), got);
    done += got;
  }
  return done;
}

}  // namespace

TokenWriter::TokenWriter(std::filesystem::path path, TokenFormat format, std::int64_t tokens,
                         std::string const& hash)
    : path_(std::move(path)), format_(format), tokens_(tokens) {
  std::filesystem::path const name = partial(path_);
  XXH3_128bits_reset(&state_);
  buffer_.reserve(buffer_bytes + 64);
  bool const goes_on = !hash.empty();
  file_ = files::Descriptor(::open(name.c_str(), O_RDWR | O_CLOEXEC | (goes_on ? 0 : O_CREAT), 0666));
  if (!file_) files::file_error(name, "open for writing", errno);
  if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw Error(ErrorKind::failed, files::path_text(name) +
                                       ": another run writes it; wait for that one, or give "
                                       "another --output");
  if (!goes_on) {
    if (::ftruncate(file_.get(), 0) != 0) files::file_error(name, "empty the file", errno);
    std::array<char, header_bytes> const header{};  // zeros, so an incomplete file is not a valid token file
    files::write_all(file_.get(), header.data(), header.size(), name);
    return;
  }
  std::size_t const size = static_cast<std::size_t>(tokens_ * bytes_per_token(format_));
  if (hash_range(file_.get(), header_bytes, size, state_, name.string()) != size || this->hash() != hash)
    throw Error(
        ErrorKind::data,
        files::path_text(name) +
            ": does not hold what the previous run wrote; remove it and its .state file, and start again");
  auto const end = static_cast<::off_t>(header_bytes + size);
  if (::ftruncate(file_.get(), end) != 0 || ::lseek(file_.get(), end, SEEK_SET) != end)
    files::file_error(name, "cut to what was saved", errno);
}

void TokenWriter::write(std::span<std::uint32_t const> ids) {
  if (static_cast<std::int64_t>(ids.size()) > max_tokens - tokens_)
    throw Error(ErrorKind::data, files::path_text(path_) +
                                     ": more than 2,147,483,647 tokens, the most that the header of a token "
                                     "file can give; prepare the inputs in several files");
  tokens_ += static_cast<std::int64_t>(ids.size());
  for (std::uint32_t const id : ids) {
    auto const narrow = static_cast<std::uint16_t>(id);
    if (format_ == TokenFormat::u16)
      buffer_.append(reinterpret_cast<char const*>(&narrow), sizeof narrow);
    else
      buffer_.append(reinterpret_cast<char const*>(&id), sizeof id);
    if (buffer_.size() >= buffer_bytes) flush();
  }
}

void TokenWriter::flush() {
  XXH3_128bits_update(&state_, buffer_.data(), buffer_.size());
  files::write_all(file_.get(), buffer_.data(), buffer_.size(), partial(path_));
  buffer_.clear();
}

void TokenWriter::sync() {
  flush();
  if (::fdatasync(file_.get()) != 0) files::file_error(partial(path_), "sync", errno);
}

std::string TokenWriter::hash() const {
  XXH3_state_t state = state_;
  XXH3_128bits_update(&state, buffer_.data(), buffer_.size());
  return digits_of(state);
}

void TokenWriter::commit() {
  flush();
  std::array<std::int32_t, 256> header{};
  bool const narrow = format_ == TokenFormat::u16;
  header[0] = narrow ? 20240520 : 20240801;
  header[1] = narrow ? 1 : 7;
  header[2] = static_cast<std::int32_t>(tokens_);
  std::filesystem::path const name = partial(path_);
  if (::pwrite(file_.get(), header.data(), sizeof header, 0) != static_cast<ssize_t>(sizeof header))
    files::file_error(name, "write", errno);
  if (::fsync(file_.get()) != 0) files::file_error(name, "sync", errno);
  if (::rename(name.c_str(), path_.c_str()) != 0) files::file_error(path_, "rename", errno);
  files::Descriptor const folder(::open(files::folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder) (void)::fsync(folder.get());  // some file systems cannot; the file is complete anyway
}

std::string hash_of_file(std::filesystem::path const& path, std::size_t offset) {
  struct stat status {};
  files::Descriptor const file = files::open_regular(path.string(), status);
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  hash_range(file.get(), offset, ~std::size_t{0}, state, path.string());
  return digits_of(state);
}

}  // namespace cli
}  // namespace programs
