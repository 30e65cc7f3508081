// SPDX-License-Identifier: Apache-2.0
#include "monitor/processes.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tessera/data/file_bytes.hpp"

namespace programs {
using namespace tessera;
namespace monitor {

namespace {

/// Returns the first 4096 bytes of a file, or the whole file if it is shorter; "" if it cannot be read.
std::string head_of(std::string const& path) {
  files::Descriptor const file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> bytes;
  ssize_t const size = file ? ::read(file.get(), bytes.data(), bytes.size()) : -1;
  return size > 0 ? std::string(bytes.data(), static_cast<std::size_t>(size)) : std::string();
}

/// Returns the numbers and letters of a line whose words are separated by spaces. A letter becomes its
/// character code.
std::vector<std::int64_t> fields_of(std::string_view line) {
  std::vector<std::int64_t> fields;
  line = line.substr(0, line.find('\n'));
  while (!line.empty()) {
    std::string_view const word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(line.size(), word.size() + 1));
    if (word.empty()) continue;
    std::int64_t number = static_cast<unsigned char>(word.front());
    auto const [end, code] = std::from_chars(word.data(), word.data() + word.size(), number);
    (void)end, (void)code;  // the conversion fails for a letter, and for unused numbers beyond 64 bits
    fields.push_back(number);
  }
  return fields;
}

}  // namespace

std::optional<ProcessLine> parse_process(std::string_view text) {
  std::size_t const name_end = text.rfind(") ");
  if (name_end == text.npos) return std::nullopt;
  // `fields` starts with field 3 of /proc/PID/stat (see proc_pid_stat(5)), the state. Field 4 is the parent,
  // fields 14 to 17 are CPU times, field 22 is the start time and field 24 is the number of resident pages.
  std::vector<std::int64_t> const fields = fields_of(text.substr(name_end + 2));
  auto const field = [&](std::size_t number) { return fields[number - 3]; };
  if (fields.size() < 22) return std::nullopt;
  return ProcessLine{field(4), static_cast<char>(field(3)), field(14) + field(15) + field(16) + field(17),
                     field(22), field(24)};
}

std::optional<SystemTicks> parse_system(std::string_view text) {
  if (!text.starts_with("cpu ")) return std::nullopt;
  // The fields are user, nice, system, idle, iowait, irq, softirq and steal. The fields after them are not
  // added, because their times are contained in user and nice.
  std::vector<std::int64_t> const fields = fields_of(text.substr(4));
  if (fields.size() < 4) return std::nullopt;
  SystemTicks ticks;
  for (std::size_t at = 0; at < fields.size() && at < 8; ++at) {
    ticks.all += fields[at];
    if (at != 3 && at != 4) ticks.busy += fields[at];
  }
  return ticks;
}

ProcessTree::ProcessTree(std::int64_t root, std::string proc) : root_(root), proc_(std::move(proc)) {
  if (auto const line = line_of(root_)) started_ = line->started;
}

std::optional<ProcessLine> ProcessTree::line_of(std::int64_t pid) const {
  return pid > 0 ? parse_process(head_of(proc_ + "/" + std::to_string(pid) + "/stat")) : std::nullopt;
}

bool ProcessTree::alive() const {
  auto const line = line_of(root_);
  return line && line->started == started_ && line->state != 'Z' && line->state != 'X';
}

std::optional<ProcessTree::Use> ProcessTree::read() {
  if (!alive()) return std::nullopt;
  std::unique_ptr<DIR, int (*)(DIR*)> const folder(::opendir(proc_.c_str()), &::closedir);
  if (!folder) return std::nullopt;
  // For a process id that was seen before, known_ says whether it belongs to the tree. The code looks up the
  // parents of new processes only.
  std::map<std::int64_t, bool> now;
  std::map<std::int64_t, ProcessLine> fresh;
  while (dirent const* const entry = ::readdir(folder.get())) {
    std::string_view const name(entry->d_name);
    std::int64_t pid = 0;
    auto const [end, code] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (code != std::errc() || end != name.data() + name.size()) continue;
    if (auto const place = known_.find(pid); place != known_.end())
      now.insert(*place);
    else if (auto const line = line_of(pid))
      fresh.emplace(pid, *line);
  }
  now[root_] = true;
  for (bool found = true; found;) {
    found = false;
    for (auto const& [pid, line] : fresh) {
      auto const parent = now.find(line.parent);
      if (now.count(pid) == 0 && parent != now.end() && parent->second) found = now[pid] = true;
    }
  }
  for (auto const& [pid, line] : fresh) now.emplace(pid, false);
  known_ = std::move(now);
  Use use;
  for (auto const& [pid, belongs] : known_) {
    if (!belongs) continue;
    auto const line = line_of(pid);
    if (!line) continue;
    use.ticks += line->ticks;
    use.pages += line->pages;
    ++use.processes;
  }
  return use;
}

CpuUse::CpuUse(std::int64_t root, std::string proc) : proc_(proc), tree_(root, std::move(proc)) {}

CpuUse::Reading CpuUse::read() {
  Reading reading;
  auto const system = parse_system(head_of(proc_ + "/stat"));
  auto const tree = tree_.read();
  // CPU use is the number of busy clock ticks divided by the number of all clock ticks of all cores since the
  // previous reading.
  double const passed = system && system_ ? static_cast<double>(system->all - system_->all) : 0.0;
  if (passed > 0.0) {
    reading.util_pct =
        100.0 * static_cast<double>(std::max<std::int64_t>(0, system->busy - system_->busy)) / passed;
    if (tree && ticks_)  // the sum falls if a child ended and no process waited for it
      reading.process_util_pct =
          100.0 * static_cast<double>(std::max<std::int64_t>(0, tree->ticks - *ticks_)) / passed;
  }
  if (tree) {
    reading.process_bytes = tree->pages * ::sysconf(_SC_PAGESIZE);
    reading.processes = tree->processes;
    ticks_ = tree->ticks;
  } else {
    ticks_ = std::nullopt;
  }
  system_ = system;
  return reading;
}

}  // namespace monitor
}  // namespace programs
