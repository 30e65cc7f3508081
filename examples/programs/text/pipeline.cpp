// SPDX-License-Identifier: Apache-2.0
// Implements pipeline.hpp: reads the input files in blocks, and encodes the blocks to tokens on several
// threads.
#include "text/pipeline.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/json_lines.hpp"

#include "text/unicode.hpp"

namespace programs {
using namespace tessera;
namespace text {

namespace {

constexpr std::size_t max_uncut = 64 << 20, max_line = 256 << 20;

std::string shown(InputFile const& file) {
  return file.path == "-" ? "standard input" : files::path_text(file.path);
}

/// The bytes that one thread encodes at once: lines of a JSONL file, or a section of a text.
struct Block {
  InputFile const* file = nullptr;
  std::string bytes;
  std::int64_t line = 0;  // number of lines before this block
  bool begins = false, ends = false;
  Position after;
};

class BlockReader {
 public:
  BlockReader(Tokenizer const& tokenizer, std::vector<InputFile> const& files, PipelineOptions const& options)
      : tokenizer_(tokenizer),
        files_(files),
        limit_(options.data_bytes),
        section_(options.stretch),
        at_(options.start) {
    for (std::size_t i = 0; i < at_.file && i < files.size(); ++i) packed_before_ += files[i].size;
  }

  /// Returns the next block, or nullopt after the last one.
  std::optional<Block> next() {
    for (;;) {
      if (at_.file >= files_.size()) return std::nullopt;
      InputFile const& file = files_[at_.file];
      if (!stream_) open(file);
      Block block;
      block.file = &file;
      block.line = at_.line;
      block.begins = at_.offset == 0;
      bool const last = file.records ? move_lines(block) : move_text(block);
      std::string_view const bytes = block.bytes;
      at_.offset += static_cast<std::int64_t>(bytes.size());
      at_.bytes += static_cast<std::int64_t>(bytes.size());
      at_.packed = packed_before_ + stream_->consumed();
      if (file.records) at_.line += std::count(bytes.begin(), bytes.end(), '\n');
      block.ends = last;
      if (last) {
        packed_before_ += file.size;
        at_ = {at_.file + 1, 0, 0, at_.bytes, packed_before_};
        if (limit_reached_ || (limit_ > 0 && at_.bytes >= limit_)) at_.file = files_.size();
        stream_.reset();
        carry_.clear();
      }
      block.after = at_;
      return block;
    }
  }

 private:
  void open(InputFile const& file) {
    stream_ = ByteStream::open(file.path);
    carry_.clear();
    if (at_.offset > 0 && !stream_->skip(at_.offset))
      throw Error(ErrorKind::data,
                  shown(file) + ": is shorter than when the run began; start again without --resume");
  }

  /// Reads until `carry_` has `size` bytes. Returns false if the input ends or the limit --data-bytes is
  /// reached before.
  bool fill_carry(std::size_t size) {
    if (limit_ == 0) return fill(*stream_, carry_, size);
    auto const left = static_cast<std::size_t>(std::max<std::int64_t>(0, limit_ - at_.bytes));
    return fill(*stream_, carry_, std::min(size, left)) && size < left;
  }

  void move_front(Block& block, std::size_t bytes) {
    block.bytes.assign(carry_, 0, bytes);
    carry_.erase(0, bytes);
  }

  /// Moves a section of text into the block. The section ends at a position at which the tokenizer allows a
  /// cut. Returns true for the last block of a file.
  bool move_text(Block& block) {
    for (std::size_t size = section_;; size *= 2) {
      if (!fill_carry(size)) {
        limit_reached_ = limit_ > 0 && static_cast<std::int64_t>(carry_.size()) >= limit_ - at_.bytes;
        if (limit_reached_) drop_part_of_character();
        move_front(block, carry_.size());
        return true;
      }
      if (std::size_t const at = tokenizer_.cut(carry_, section_ / 2); at > 0) {
        move_front(block, at);
        return false;
      }
      if (size >= max_uncut)
        throw Error(ErrorKind::data, shown(files_[at_.file]) + ": " +
                                         files::with_commas(std::int64_t{max_uncut}) + " bytes from byte " +
                                         files::with_commas(at_.offset) +
                                         " on cannot be split, because this tokenizer allows no cut there; "
                                         "split the file, or convert it to records (JSONL)");
    }
  }

  /// Moves complete lines into the block. The last line of a file possibly has no line end. Returns true for
  /// the last block of a file.
  bool move_lines(Block& block) {
    bool more = true;
    for (std::size_t size = longest_stretch; more; size *= 2) {
      more = fill(*stream_, carry_, size);
      std::size_t end = carry_.rfind('\n');
      auto const left = static_cast<std::size_t>(std::max<std::int64_t>(1, limit_ - at_.bytes));
      limit_reached_ = limit_ > 0 && carry_.size() >= left;
      if (limit_reached_) {  // with this limit, the last record is the one that contains the last allowed
                             // byte
        end = carry_.find('\n', left - 1);
        if (end != carry_.npos) return move_front(block, end + 1), true;
      } else if (more && end != carry_.npos) {
        return move_front(block, end + 1), false;
      }
      if (more && size >= max_line)
        throw Error(ErrorKind::data, shown(files_[at_.file]) + ": line " + std::to_string(at_.line + 1) +
                                         " is longer than " + files::with_commas(std::int64_t{max_line}) +
                                         " bytes; is this JSONL?");
    }
    return move_front(block, carry_.size()), true;
  }

  /// If the limit --data-bytes ends within a character, removes the incomplete character at the end of
  /// `carry_`.
  void drop_part_of_character() {
    std::size_t at = carry_.size();
    for (int back = 0; back < 3 && at > 0 && (static_cast<unsigned char>(carry_[at - 1]) & 0xc0) == 0x80;
         ++back)
      --at;
    if (at == 0) return;
    auto const first = static_cast<unsigned char>(carry_[at - 1]);
    std::size_t const size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
    if (at - 1 + size > carry_.size()) carry_.resize(at - 1);
  }

  Tokenizer const& tokenizer_;
  std::vector<InputFile> const& files_;
  std::int64_t limit_;
  std::size_t section_;
  bool limit_reached_ = false;
  Position at_;
  std::int64_t packed_before_ = 0;
  std::unique_ptr<ByteStream> stream_;
  std::string carry_;
};

class BlockEncoder {
 public:
  BlockEncoder(Tokenizer const& tokenizer, std::string const& field)
      : tokenizer_(tokenizer), encoder_(tokenizer.encoder()), field_(field) {}

  Encoded encode(Block const& block) {
    Encoded out;
    out.after = block.after;
    if (block.file->records)
      records(block, out);
    else
      part(block.bytes, block.begins, block.ends, out);
    return out;
  }

 private:
  void part(std::string_view text, bool begins, bool ends, Encoded& out) {
    if (text.empty() && begins) {
      ++out.empty;
      return;
    }
    Ids& ids = out.ids;
    if (begins) ids.insert(ids.end(), tokenizer_.before().begin(), tokenizer_.before().end());
    encoder_->encode(repaired(text, storage_, out.replaced), begins, ids);
    if (ends) ids.insert(ids.end(), tokenizer_.behind().begin(), tokenizer_.behind().end());
    out.documents += ends;
    out.ends.push_back(ids.size());
  }

  void records(Block const& block, Encoded& out) {
    std::string_view const all = block.bytes;
    std::int64_t line = block.line;
    for (std::size_t at = 0; at < all.size();) {
      std::size_t const end = std::min(all.find('\n', at), all.size());
      std::string_view const record = all.substr(at, end - at);
      at = end + 1;
      ++line;
      if (record.find_first_not_of(" \t\r") == record.npos) continue;
      std::string const text =
          field_of(record, field_, shown(*block.file) + ": line " + std::to_string(line), {}, &out.replaced);
      part(text, true, true, out);
    }
  }

  Tokenizer const& tokenizer_;
  std::unique_ptr<Encoder> encoder_;
  std::string const& field_;
  std::string storage_;
};

/// The state that the threads share: a queue of blocks to encode, results by number of the block, and errors.
class Exchange {
 public:
  explicit Exchange(std::size_t window) : window_(window) {}

  /// Adds a block to the queue. Waits while the queue is full. Returns false if the run was stopped.
  bool offer(Block&& block) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stop_ || offered_ - delivered_ < window_; });
    if (stop_) return false;
    blocks_.emplace_back(offered_++, std::move(block));
    changed_.notify_all();
    return true;
  }
  /// Ends the queue. The reader calls it after the last block. `error` is the error of the reader, or null.
  void finish(std::exception_ptr error) {
    std::lock_guard const lock(mutex_);
    finished_ = true;
    if (error) failures_[offered_] = error;
    changed_.notify_all();
  }
  std::optional<std::pair<std::size_t, Block>> next_block() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stop_ || finished_ || !blocks_.empty(); });
    if (stop_ || blocks_.empty()) return std::nullopt;
    auto block = std::move(blocks_.front());
    blocks_.pop_front();
    return block;
  }
  void give(std::size_t number, Encoded&& encoded) {
    std::lock_guard const lock(mutex_);
    results_[number] = std::move(encoded);
    changed_.notify_all();
  }
  void fail(std::size_t number, std::exception_ptr error) {
    std::lock_guard const lock(mutex_);
    failures_[number] = error;
    changed_.notify_all();
  }
  /// Waits for the result of the next block in the order of the input and returns it. Returns nullopt after
  /// the last block. If the encoding of the block failed, throws the error of the encoding.
  std::optional<Encoded> next_encoded() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return results_.contains(delivered_) || failures_.contains(delivered_) ||
             (finished_ && delivered_ == offered_);
    });
    if (failures_.contains(delivered_)) std::rethrow_exception(failures_[delivered_]);
    if (!results_.contains(delivered_)) return std::nullopt;
    auto node = results_.extract(delivered_++);
    changed_.notify_all();
    return std::move(node.mapped());
  }
  void stop() {
    std::lock_guard const lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }

 private:
  std::size_t window_, offered_ = 0, delivered_ = 0;
  bool finished_ = false, stop_ = false;
  std::deque<std::pair<std::size_t, Block>> blocks_;
  std::map<std::size_t, Encoded> results_;
  std::map<std::size_t, std::exception_ptr> failures_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace

std::size_t stretch_for(std::int64_t bytes, double share) {
  double const held_out = static_cast<double>(bytes) * share;
  if (held_out <= 0.0 || held_out >= static_cast<double>(longest_stretch)) return longest_stretch;
  return std::max<std::size_t>(16, static_cast<std::size_t>(held_out / 2));
}

void encode_inputs(Tokenizer const& tokenizer, std::vector<InputFile> const& files,
                   PipelineOptions const& options, std::function<bool(Encoded const&)> const& consume) {
  if (options.threads < 1) throw Error(ErrorKind::usage, "a pipeline needs 1 thread or more");
  Exchange exchange(static_cast<std::size_t>(options.threads) * 2 + 2);
  std::vector<std::thread> threads;
  struct End {
    Exchange& exchange;
    std::vector<std::thread>& threads;
    ~End() {
      exchange.stop();
      for (std::thread& thread : threads) thread.join();
    }
  } const end{exchange, threads};
  threads.emplace_back([&] {
    std::exception_ptr error;
    try {
      BlockReader reader(tokenizer, files, options);
      while (auto block = reader.next())
        if (!exchange.offer(std::move(*block))) break;
    } catch (...) {
      error = std::current_exception();
    }
    exchange.finish(error);
  });
  for (int i = 0; i < options.threads; ++i)
    threads.emplace_back([&] {
      std::optional<BlockEncoder> encoder;
      while (auto next = exchange.next_block()) try {
          if (!encoder) encoder.emplace(tokenizer, options.field);
          exchange.give(next->first, encoder->encode(next->second));
        } catch (...) {
          exchange.fail(next->first, std::current_exception());
        }
    });
  while (auto const encoded = exchange.next_encoded())
    if (!consume(*encoded)) break;
}

}  // namespace text
}  // namespace programs
