// SPDX-License-Identifier: Apache-2.0
// The program `monitor`. It runs a command and meanwhile samples the GPUs, the CPU cores and the command's
// processes. At the end it prints statistics of each sampled figure.
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <limits>
#include <optional>
#include <poll.h>
#include <spawn.h>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tessera/io/file.hpp"

#include "cli/command_line.hpp"
#include "cli/outputs.hpp"
#include "cli/program.hpp"
#include "cli/terminal.hpp"
#include "machine/gpus.hpp"
#include "machine/machine.hpp"
#include "monitor/columns.hpp"
#include "monitor/files.hpp"
#include "monitor/phases.hpp"
#include "monitor/processes.hpp"
#include "monitor/sampler.hpp"
#include "trace/marks.hpp"

namespace cli = programs::cli;
using cli::Json;

namespace programs {
using namespace tessera;
namespace monitor {

namespace {

constexpr char examples[] =
    "Examples:\n"
    "  monitor --csv gpu.csv -- train --data book.txt --steps 1000\n"
    "  monitor --interval-ms 5 --json gpu.json -- compare --device cuda\n"
    "  monitor --marks t.json -- train --trace t.json --trace-steps 100 --steps 110\n"
    "  monitor --pid 1234               until that process ends\n"
    "  monitor --seconds 60 --csv -     for a minute, rows on standard output\n"
    "\nThe exit code is the command's, or 128 + N if signal N ended it. monitor itself also ends with 2 if "
    "the command\nor process does not exist, and with 4 if the marks do not belong to this run.\n";

struct Settings {
  double interval_ms = 10.0, cpu_interval_ms = 100.0, seconds = 0.0;
  std::int64_t pid = 0;
  std::filesystem::path csv, json, marks;
  std::int64_t marks_rank = 0;
  bool quiet = false;
  std::vector<char*> command;
};

constexpr std::int64_t second_ns = 1000000000;

std::int64_t nanoseconds(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return std::int64_t{time.tv_sec} * second_ns + time.tv_nsec;
}

/// Returns a time as text: "2026-01-31T12:00:00.123Z".
std::string utc_text(std::int64_t unix_ns) {
  auto const whole = static_cast<std::time_t>(unix_ns / second_ns);
  std::tm parts{};
  ::gmtime_r(&whole, &parts);
  char text[40];
  std::size_t const end = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + end, sizeof text - end, ".%03dZ", static_cast<int>(unix_ns / 1000000 % 1000));
  return text;
}

/// Returns a row as a line of CSV. Nothing is quoted, since no cell contains a comma.
std::string csv_line(Json const& row) {
  std::string line;
  for (std::size_t at = 0; at < row.size(); ++at) {
    Json const& cell = row[at];
    line += (at == 0 ? "" : ",") + (cell.is_null()     ? std::string()
                                    : cell.is_string() ? cell.get<std::string>()
                                                       : cell.dump());
  }
  return line + "\n";
}

std::string json_end(Json const& summary) { return "\n ],\n \"summary\": " + summary.dump() + "\n}\n"; }

/// Blocks signals in this thread and in threads that start later. The function `take` returns the blocked
/// signals one by one.
class Signals {
 public:
  Signals() {
    sigset_t set;
    ::sigemptyset(&set);
    for (int const number : {SIGINT, SIGTERM, SIGCHLD}) ::sigaddset(&set, number);
    // A program under nohup must continue to ignore SIGHUP.
    struct sigaction hangup {};
    ::sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) ::sigaddset(&set, SIGHUP);
    ::sigprocmask(SIG_BLOCK, &set, &before_);
    // The parent process possibly made this process ignore SIGINT: a shell without job control does so for
    // background jobs. SIGCHLD is possibly ignored too; the kernel would then not report the end of a child.
    // So all three signals get their default action.
    for (int const number : {SIGINT, SIGTERM, SIGCHLD}) ::signal(number, SIG_DFL);
    file_ = files::Descriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  int file() const { return file_.get(); }
  sigset_t const& before() const { return before_; }
  /// Returns the next pending signal; nullopt if there is none.
  std::optional<signalfd_siginfo> take() const {
    signalfd_siginfo found{};
    return ::read(file_.get(), &found, sizeof found) == static_cast<ssize_t>(sizeof found)
               ? std::optional(found)
               : std::nullopt;
  }

 private:
  sigset_t before_;
  files::Descriptor file_;
};

/// Starts the command with the streams, environment and signal handling of this process. Returns its process
/// id. Throws Error(usage) if it cannot be started.
pid_t start(std::vector<char*> command, Signals const& signals) {
  command.push_back(nullptr);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t standard;
  ::sigemptyset(&standard);
  // this program ignores these two signals, but the command must start with their default action
  for (int const number : {SIGXFSZ, SIGPIPE}) ::sigaddset(&standard, number);
  ::posix_spawnattr_setsigdefault(&attributes, &standard);
  ::posix_spawnattr_setsigmask(&attributes, &signals.before());
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  pid_t child = 0;
  int const code = ::posix_spawnp(&child, command.front(), nullptr, &attributes, command.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  if (code != 0)
    cli::refuse("cannot start " + cli::in_quotes(command.front()) + " (" + files::errno_text(code) +
                "); give a program in PATH, or its path, after --");
  return child;
}

/// Samples one command, or one running process, until it ends.
class Run {
 public:
  Run(Settings const& settings, Signals const& signals, nvml::Library const& gpus, pid_t child)
      : settings_(settings),
        signals_(signals),
        gpus_(gpus),
        child_(child),
        watched_(child > 0 ? child : settings.pid),
        sampler_(gpus, CpuUse(watched_), static_cast<std::int64_t>(1e6 * settings.interval_ms),
                 static_cast<std::int64_t>(1e6 * settings.cpu_interval_ms)),
        deadlines_(static_cast<std::int64_t>(1e6 * settings.interval_ms)),
        terminal_(cli::Terminal::of(STDERR_FILENO)) {
    if (!settings.csv.empty()) csv_.emplace(settings.csv);
    if (!settings.json.empty()) json_.emplace(settings.json);
    names_ = sampler_.columns();
    if (!settings.marks.empty()) {
      for (char const* const name : {"step", "phase"}) names_.emplace_back(name);
      keep([&] { rows_.emplace(); });
    }
    if (settings.pid > 0)
      process_ = files::Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, settings.pid, 0)));
    // The live line is not shown if the command writes to the same terminal.
    live_ = terminal_.interactive && !settings.quiet && (child == 0 || ::isatty(STDOUT_FILENO) == 0);
  }

  int run(std::string const& command) {
    unix_ns_ = nanoseconds(CLOCK_REALTIME);
    start_ns_ = nanoseconds(CLOCK_MONOTONIC);
    own_cpu_s_ = cli::cpu_seconds();
    begin_files(command);
    std::int64_t const end = settings_.seconds > 0.0 ? static_cast<std::int64_t>(1e9 * settings_.seconds)
                                                     : std::numeric_limits<std::int64_t>::max();
    while (!ended_ && interrupted_ == 0) {
      std::int64_t const now = since_start();
      if (now >= end) break;
      // the deadline has not passed if a signal ended the wait early
      if (now >= deadlines_.next()) sample(now);
      wait(std::min(deadlines_.next(), end));
    }
    end_ns_ = since_start();
    finish();
    return exit_code();
  }

 private:
  std::int64_t since_start() const { return nanoseconds(CLOCK_MONOTONIC) - start_ns_; }

  void sample(std::int64_t now) {
    deadlines_.taken(now);
    Json row = sampler_.take(now, 1e-9 * static_cast<double>(unix_ns_));
    if (!settings_.marks.empty()) {
      if (rows_) keep([&] { rows_->add(Json({now, since_start(), row}).dump()); });
      // two empty cells; `attribute` fills them with the step and the phase after it has read the marks
      for (int column = 0; column < 2; ++column) row.push_back(nullptr);
    }
    if (csv_) csv_->add(csv_line(row));
    if (json_) json_->add((deadlines_.samples() == 1 ? "\n  " : ",\n  ") + row.dump());
    if (now - written_ns_ >= second_ns) {
      written_ns_ = now;
      write_files(false);
    }
    if (live_ && now - drawn_ns_ >= second_ns / 5) {
      drawn_ns_ = now;
      std::string line = cli::fixed(1e-9 * static_cast<double>(now), 1) + " s" + sampler_.live();
      if (line.size() + 1 > static_cast<std::size_t>(terminal_.width))
        line.resize(static_cast<std::size_t>(std::max(1, terminal_.width - 1)));
      std::cerr << '\r' << line << "\033[K" << std::flush;
    }
  }

  /// Waits until the time `until`, in nanoseconds since the start. Returns earlier after a signal or if the
  /// watched process ends.
  void wait(std::int64_t until) {
    std::int64_t left = until - since_start();
    // without a pidfd the kernel does not report the end of the process, so this function checks it every
    // second
    if (process_.get() < 0 && settings_.pid > 0) {
      if (!ProcessTree(settings_.pid).alive()) ended_ = true;
      left = std::min(left, second_ns);
    }
    left = std::max<std::int64_t>(0, left);
    timespec const timeout{left / second_ns, left % second_ns};
    pollfd files[] = {{signals_.file(), POLLIN, 0}, {process_.get(), POLLIN, 0}};
    if (::ppoll(files, 2, &timeout, nullptr) <= 0) return;
    if (files[1].revents != 0) ended_ = true;
    while (auto const signal = signals_.take()) handle_signal(*signal);
  }

  void handle_signal(signalfd_siginfo const& signal) {
    auto const number = static_cast<int>(signal.ssi_signo);
    if (number == SIGCHLD) {
      int status = 0;
      if (child_ > 0 && ::wait4(child_, &status, WNOHANG, &usage_) == child_) {
        status_ = status;
        ended_ = true;
      }
    } else if (child_ == 0) {
      interrupted_ = number;
    } else if (!ended_ && signal.ssi_code != SI_KERNEL) {
      ::kill(child_, number);  // if the terminal sent the signal, the command has received it already
    }
  }

  int exit_code() const {
    int const code = child_ == 0            ? (interrupted_ == 0 ? 0 : 128 + interrupted_)
                     : WIFSIGNALED(status_) ? 128 + WTERMSIG(status_)
                                            : WEXITSTATUS(status_);
    int failed = 0;
    auto const say = [&](std::optional<Error> const& error) {
      if (!error) return;
      cli::print_error(error->what());
      failed = tessera::exit_code(error->kind());
    };
    say(marks_error_);
    for (auto const* const file : {&csv_, &json_})
      if (*file) say((*file)->error());
    return code == 0 ? failed : code;
  }

  void begin_files(std::string const& command) {
    csv_head_ = cli::joined(names_, ",") + "\n";
    if (csv_) csv_->add(csv_head_);
    if (!json_) return;
    Json head = Json::object();
    head["schema_version"] = 1;
    head["command"] = command;
    head["pid"] = watched_ > 0 ? Json(watched_) : Json(nullptr);
    head["started"] = utc_text(unix_ns_);
    head["started_unix_s"] = 1e-9 * static_cast<double>(unix_ns_);
    head["started_monotonic_s"] = 1e-9 * static_cast<double>(start_ns_);
    head["interval_ms"] = settings_.interval_ms;
    head["cpu_interval_ms"] = settings_.cpu_interval_ms;
    head["environment"] = cli::environment(DeviceFacts());
    cli::add_gpus(head["environment"], cli::state_of(gpus_), {});
    head["columns"] = names_;
    json_head_ = head.dump(1, ' ', false, Json::error_handler_t::replace);
    json_head_.resize(json_head_.size() - 2);  // without the closing characters, which follow later
    json_head_ += ",\n \"samples\": [";
    json_->add(json_head_);
  }

  /// Runs an action that only --marks needs. If the action throws, stores the error and continues. The end of
  /// the run reports the stored error.
  template <class Action>
  void keep(Action&& action) {
    try {
      action();
    } catch (Error const& error) {
      if (!marks_error_) marks_error_ = error;
      rows_.reset();
    }
  }

  /// Finds the training step and the phase of each sample, according to the marks of the training program.
  /// Rewrites the output files with two more columns, step and phase. Adds the statistics of each phase to
  /// `summary`.
  void attribute(Json& summary) {
    cli::Marks const marks = cli::read_marks(settings_.marks, static_cast<int>(settings_.marks_rank));
    check_overlap(settings_.marks.string(), marks, start_ns_, start_ns_ + end_ns_);
    PhaseFigures figures(marks, sampler_.columns(), sampler_.decimals(), sampler_.times());
    std::optional<AtomicFile> csv, json;
    if (csv_ && !csv_->error()) csv.emplace(settings_.csv);
    if (json_ && !json_->error()) json.emplace(settings_.json);
    if (csv) csv->write(csv_head_);
    if (json) json->write(json_head_);
    rows_->rewind();
    for (bool first = true; std::optional<std::string> const line = rows_->next(); first = false) {
      Json entry = Json::parse(*line);
      Json& row = entry[2];
      auto const place = figures.add(start_ns_ + entry[0].get<std::int64_t>(),
                                     start_ns_ + entry[1].get<std::int64_t>(), row);
      row.push_back(place.step ? Json(*place.step) : Json(nullptr));
      row.push_back(place.phase ? Json(*place.phase) : Json(nullptr));
      if (csv) csv->write(csv_line(row));
      if (json) json->write((first ? "\n  " : ",\n  ") + row.dump());
    }
    summary["phases"] = figures.json();
    if (json) json->write(json_end(summary));
    if (csv) csv->commit();
    if (json) json->commit();
    phases_text_ = figures.table(terminal_.width);
  }

  void write_files(bool last, Json const& summary = nullptr) {
    if (csv_) csv_->write("", last);
    if (json_) json_->write(json_end(summary), last);
    // If monitor did not start a command, and no output file can be written any more, the run ends.
    auto const lost = [](auto const& file) { return !file || file->error(); };
    if (child_ == 0 && (csv_ || json_) && lost(csv_) && lost(json_)) ended_ = true;
  }

  void finish() {
    double const wall = 1e-9 * static_cast<double>(end_ns_);
    double const own = cli::cpu_seconds() - own_cpu_s_;
    auto const samples = static_cast<double>(deadlines_.samples());
    Json summary = Json::object();
    summary["seconds"] = wall;
    summary["samples"] = deadlines_.samples();
    summary["late_samples"] = deadlines_.late();
    summary["missed_samples"] = deadlines_.missed();
    summary["own_cpu_s"] = own;
    summary["own_cpu_pct_of_a_core"] = wall > 0.0 ? Json(100.0 * own / wall) : Json(nullptr);
    summary["exit_code"] = child_ > 0
                               ? Json(WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_))
                               : Json(nullptr);
    summary["command_cpu_s"] = child_ > 0 ? Json(cli::cpu_seconds(usage_)) : Json(nullptr);
    summary["gpus"] = sampler_.gpu_summary();
    summary["columns"] = sampler_.column_summary();
    if (!settings_.marks.empty()) summary["phases"] = nullptr;
    write_files(true, summary);
    if (rows_) keep([&] { attribute(summary); });
    if (live_) std::cerr << "\r\033[K";
    if (settings_.quiet) return;
    std::string text = "monitor: " + cli::fixed(wall, 3) + " s, " + cli::grouped(deadlines_.samples()) +
                       " samples every " + cli::shortest(settings_.interval_ms) + " ms, " +
                       cli::grouped(deadlines_.late()) + " late by more than that, " +
                       cli::grouped(deadlines_.missed()) + " left out\n";
    text += "own CPU " + cli::fixed(own, 3) + " s, " +
            (wall > 0.0 ? cli::fixed(100.0 * own / wall, 1) : std::string("-")) + "% of a core, " +
            (samples > 0.0 ? cli::fixed(1e6 * own / samples, 0) : std::string("-")) + " us a sample\n";
    if (!gpus_) text += "no GPUs: " + files::printable(gpus_.reason(), gpus_.reason().size()) + "\n";
    std::cerr << text << sampler_.table(terminal_.width) << phases_text_ << std::flush;
  }

  Settings const& settings_;
  Signals const& signals_;
  nvml::Library const& gpus_;
  pid_t child_;
  std::int64_t watched_;
  Sampler sampler_;
  Deadlines deadlines_;
  cli::Terminal terminal_;
  cli::Names names_;
  std::optional<GrowingFile> csv_, json_;
  std::string csv_head_, json_head_, phases_text_;
  std::optional<Spool> rows_;  ///< the rows so far; only with --marks
  std::optional<Error> marks_error_;
  files::Descriptor process_;
  bool live_ = false, ended_ = false;
  int interrupted_ = 0, status_ = 0;
  rusage usage_{};
  double own_cpu_s_ = 0.0;
  std::int64_t unix_ns_ = 0, start_ns_ = 0, end_ns_ = 0, written_ns_ = -second_ns, drawn_ns_ = -second_ns;
};

int run(int argc, char** argv) {
  Settings settings;
  int words = 1;
  while (words < argc && std::string_view(argv[words]) != "--") ++words;
  bool const given = words < argc;
  for (int at = words + 1; at < argc; ++at) settings.command.push_back(argv[at]);

  cli::CommandLine line("monitor",
                        "Samples GPUs, cores and processes: monitor [flags] -- COMMAND..., or --pid N, or "
                        "--seconds S",
                        examples);
  line.group("Target");
  line.integer("--pid", settings.pid, "a running process with its descendants, until it ends; 0: none", 0,
               std::numeric_limits<pid_t>::max());
  line.real("--seconds", settings.seconds, "duration, if no command is given; 0: until the process ends",
            {.min = 0.0, .max = 1e9});
  line.group("Samples");
  line.real("--interval-ms", settings.interval_ms, "milliseconds from one sample to the next",
            {.min = 1.0, .max = 1e6});
  line.real("--cpu-interval-ms", settings.cpu_interval_ms,
            "milliseconds from one reading of the cores to the next; the kernel counts in ticks of 10 ms",
            {.min = 10.0, .max = 1e6});
  line.group("Outputs");
  line.path("--csv", "FILE", settings.csv, "one row per sample; - is standard output");
  line.path("--json", "FILE", settings.json,
            "the same rows, the machine and the summary; - is standard output");
  line.path("--marks", "FILE", settings.marks,
            "the file that the command writes with train --trace FILE: samples then have a step and a phase, "
            "and the summary has the cost of each phase");
  line.integer("--marks-rank", settings.marks_rank, "the rank in FILE whose steps and phases these are", 0,
               1 << 20);
  line.toggle("-q,--quiet", settings.quiet, "no live line and no summary on standard error");
  if (!line.parse(words, argv)) return 0;

  if (given && settings.command.empty())
    cli::refuse("no command follows --; give monitor [flags] -- COMMAND...");
  if (given && (settings.pid > 0 || settings.seconds > 0.0))
    cli::refuse(std::string(settings.pid > 0 ? "--pid" : "--seconds") +
                " and a command both select the target; give one of them");
  if (!given && settings.pid == 0 && settings.seconds == 0.0)
    cli::refuse("nothing to watch; give -- COMMAND, --pid N or --seconds S");
  if (settings.pid > 0 && !ProcessTree(settings.pid).alive())
    cli::refuse("--pid " + std::to_string(settings.pid) + ": no such process is running; give a running one");
  for (auto const& [flag, path] : {std::pair("--csv", &settings.csv), std::pair("--json", &settings.json)})
    if (given && *path == "-")
      cli::refuse(std::string(flag) +
                  " - and the command both write to standard output, where lines would mix; give " + flag +
                  " a file");
  if (settings.marks.empty() && line.given("--marks-rank"))
    cli::refuse("--marks-rank selects the rank of the marks, but no marks are read; give --marks FILE");
  cli::ProgramFiles(line).check();
  for (auto const* const file : {&settings.csv, &settings.json}) {
    if (file->empty()) continue;
    std::error_code code;
    bool const stream = *file == "-" || (std::filesystem::exists(*file, code) &&
                                         !std::filesystem::is_regular_file(*file, code));
    if (stream && !settings.marks.empty())
      cli::refuse(files::path_text(*file) +
                  " is a stream, but with --marks files are rewritten at the end; give a file");
    if (*file != "-") check_writable(*file);
  }

  Signals const signals;
  nvml::Library const gpus;
  pid_t const child = given ? start(settings.command, signals) : 0;
  return Run(settings, signals, gpus, child).run(cli::command_text(argc, argv));
}

}  // namespace

}  // namespace monitor
}  // namespace programs

int main(int argc, char** argv) {
  return cli::guarded([&] { return programs::monitor::run(argc, argv); });
}
