// SPDX-License-Identifier: Apache-2.0
// Provides the memory of one rank: an arena (one allocation) in device memory, an arena in host memory for
// offloaded state, and a file on a disk.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/core/operation.hpp"
#include "tessera/core/place.hpp"
#include "tessera/io/state_file.hpp"
#include "tessera/plan/schedule.hpp"
#include "tessera/plan/step_plan.hpp"
#include "tessera/tensor/arena.hpp"

namespace tessera {
inline namespace v0 {

/// Owns the arenas of one rank and its file, and has the addresses of all buffers of a plan.
template <class Place>
class StepMemory {
 public:
  /// Allocates the arenas of the plan. `file` must have at least plan.file_bytes() bytes. `file` may be null
  /// if the plan keeps no state in a file.
  explicit StepMemory(StepPlan const& plan, std::unique_ptr<StateFile> file = nullptr)
      : device_(
            std::make_shared<DeviceArena<Place>>(plan.arena_bytes[static_cast<std::size_t>(Tier::device)])),
        file_(std::move(file)),
        evaluate_program_(&plan.evaluate),
        train_(plan.train.buffers.size()),
        evaluate_(plan.evaluate.buffers.size()) {
    for (std::size_t tier = 0; tier < tier_count; ++tier)
      if (in_host_memory(Tier{static_cast<std::uint8_t>(tier)}))
        host_[tier] = OffloadArena<Place>(plan.arena_bytes[tier]);
    assign_addresses(plan);
  }
  /// Returns a StepMemory whose buffers have addresses but no memory, to record the operations of a step. The
  /// buffers must not be read or written.
  static StepMemory without_memory(StepPlan const& plan) { return {plan, NoMemory()}; }

  /// Returns the addresses of all buffers of the plan's training or evaluation program. An address is null if
  /// the buffer is never used or is in the file.
  std::span<std::byte* const> of(Program const& program) const {
    auto const& addresses = &program == evaluate_program_ ? evaluate_ : train_;
    return {addresses.data(), addresses.size()};
  }
  /// Returns the address of a buffer of the training program, or null if there is no such buffer or address.
  std::byte* train(int buffer) const {
    return buffer < 0 ? nullptr : train_[static_cast<std::size_t>(buffer)];
  }
  /// Returns the arena in device memory.
  std::shared_ptr<DeviceArena<Place>> const& device() const { return device_; }
  /// Returns the file for state on a disk, or null if the plan keeps no state in a file.
  StateFile const* file() const { return file_.get(); }

  /// Returns the number of bytes from the beginning of a tier's memory to the end of its last buffer. For the
  /// file, returns the number of bytes up to the last byte that was read or written.
  std::int64_t high_water(Tier tier) const {
    if (!has_addresses(tier)) return file_ ? file_->high_water() : 0;
    return tier == Tier::device ? device_->high_water() : host_[static_cast<std::size_t>(tier)].high_water();
  }

  /// Runs an entry that copies between the file and host memory. Returns when the copy is complete.
  void transfer(Program const& program, Entry const& entry) const {
    Item const& item = entry.items.front();
    int const from = item.at(Role::source), to = item.at(Role::target);
    Buffer const &source = program.at(from), &target = program.at(to);
    std::int64_t const bytes = round_up(program.bytes_of(entry), disk_block), begin = item.part.begin;
    auto const address = [&](int buffer) { return of(program)[static_cast<std::size_t>(buffer)]; };
    if (bytes == 0) return;
    if (has_addresses(target.tier))
      file_->read(source.offset + source.at(begin), address(to) + target.at(begin), bytes);
    else
      file_->write(target.offset + target.at(begin), address(from) + source.at(begin), bytes);
  }

  // ---- access to persistent buffers between steps ---------------------------------------------------------

  /// Returns the values of a part of a buffer in memory that the host can read. Waits for all enqueued work.
  /// The part must begin and end at a multiple of shard_alignment elements. If the host cannot access the
  /// buffer, copies the part to `staging` and returns `staging`. `staging` must begin at a multiple of
  /// disk_block bytes. Its size must be at least the part's size, rounded up to a multiple of disk_block.
  std::byte const* view(Context<Place>& context, Buffer const& buffer, Range part, std::byte* staging) const {
    std::int64_t const bytes = buffer.bytes_of(part.size());
    if (has_addresses(buffer.tier))
      return context.host_view(address(buffer) + buffer.at(part.begin), static_cast<std::size_t>(bytes),
                               staging);
    file_->read(buffer.offset + buffer.at(part.begin), staging, round_up(bytes, disk_block));
    return staging;
  }
  /// Returns host memory in which the caller prepares a part of a buffer. `unstage` then writes this memory
  /// to the buffer. The conditions for the part and for `staging` are as in `view`.
  std::byte* stage(Context<Place>& context, Buffer const& buffer, Range part, std::byte* staging) const {
    std::int64_t const bytes = buffer.bytes_of(part.size());
    if (has_addresses(buffer.tier))
      return context.stage(address(buffer) + buffer.at(part.begin), static_cast<std::size_t>(bytes), staging);
    std::memset(staging, 0, static_cast<std::size_t>(round_up(bytes, disk_block)));
    return staging;
  }
  void unstage(Context<Place>& context, Buffer const& buffer, Range part, std::byte* staged) const {
    std::int64_t const bytes = buffer.bytes_of(part.size());
    if (has_addresses(buffer.tier))
      context.unstage(address(buffer) + buffer.at(part.begin), staged, static_cast<std::size_t>(bytes));
    else
      file_->write(buffer.offset + buffer.at(part.begin), staged, round_up(bytes, disk_block));
  }
  /// Starts to copy the elements `snapshot.range` of the buffer `from` to the buffer `snapshot`. If `from` is
  /// in a file, the copy is complete when this function returns.
  void copy(Context<Place>& context, Buffer const& from, Buffer const& snapshot) const {
    if (snapshot.bytes == 0) return;
    std::int64_t const begin = from.at(snapshot.range.begin);
    if (has_addresses(from.tier))
      context.copy(address(snapshot), address(from) + begin, size(snapshot));
    else
      file_->read(from.offset + begin, address(snapshot), round_up(snapshot.bytes, disk_block));
  }
  void clear(Context<Place>& context, Buffer const& buffer) const {
    if (has_addresses(buffer.tier)) return context.clear(address(buffer), size(buffer));
    HostArena const zeros(buffer.bytes);
    if (buffer.bytes > 0) file_->write(buffer.offset, zeros.base(), round_up(buffer.bytes, disk_block));
  }

 private:
  struct NoMemory {};
  StepMemory(StepPlan const& plan, NoMemory)
      : device_(std::make_shared<DeviceArena<Place>>()),
        evaluate_program_(&plan.evaluate),
        train_(plan.train.buffers.size()),
        evaluate_(plan.evaluate.buffers.size()) {
    for (std::size_t tier = 0; tier < tier_count; ++tier)
      if (has_addresses(Tier{static_cast<std::uint8_t>(tier)}))
        addresses_[tier] = Arena<AddressSpace>(plan.arena_bytes[tier]);
    assign_addresses(plan);
  }

  static std::size_t size(Buffer const& buffer) { return static_cast<std::size_t>(buffer.bytes); }
  std::byte* address(Buffer const& buffer) const {
    std::size_t const tier = static_cast<std::size_t>(buffer.tier);
    return (buffer.tier == Tier::device ? device_->base() : host_[tier].base()) + buffer.offset;
  }
  void assign_addresses(StepPlan const& plan) {
    for (std::size_t index = 0; index < train_.size(); ++index)
      train_[index] = assign_addresses(plan.train.buffers[index]);
    for (std::size_t index = 0; index < evaluate_.size(); ++index)
      evaluate_[index] = assign_addresses(plan.evaluate.buffers[index]);
  }
  std::byte* assign_addresses(Buffer const& buffer) {
    if (buffer.offset < 0 || !has_addresses(buffer.tier)) return nullptr;
    std::size_t const tier = static_cast<std::size_t>(buffer.tier);
    if (addresses_[tier].base()) return addresses_[tier].view(buffer.offset, buffer.bytes);
    return buffer.tier == Tier::device ? device_->view(buffer.offset, buffer.bytes)
                                       : host_[tier].view(buffer.offset, buffer.bytes);
  }

  std::shared_ptr<DeviceArena<Place>> device_;             // empty for `without_memory`
  std::array<OffloadArena<Place>, tier_count> host_;       // index: Tier; empty for tiers outside host memory
  std::array<Arena<AddressSpace>, tier_count> addresses_;  // index: Tier; only for `without_memory`
  std::unique_ptr<StateFile> file_;
  Program const* evaluate_program_;
  std::vector<std::byte*> train_, evaluate_;
};

}  // namespace v0
}  // namespace tessera
