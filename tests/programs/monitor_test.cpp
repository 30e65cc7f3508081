// SPDX-License-Identifier: Apache-2.0
// Tests the program `monitor`, which runs a command and samples the use of CPU and GPUs. `monitor` must end
// with the exit code or the signal of the command. Its files must be complete however it ends. Values that
// cannot be measured must be null.
#include "programs/harness.hpp"

using test::field, test::has, test::Json, test::matches, test::Shell, test::shows;

namespace {

struct Monitor : Shell {
  /// A shell command that runs the program `monitor` with a stub of NVML that reports two GPUs. The second
  /// GPU reports almost no values.
  std::string const on_gpus =
      R"sh(TESSERA_NVML="$(dirname "$(command -v tessera_marks_writer)")"/libtessera_nvml_stub.so monitor )sh";

  /// Returns the JSON document `file`, which the program `monitor` wrote. The document must have at least
  /// `least` samples. Each sample must have a value for each column. The times of the samples must rise, and
  /// no sample may be earlier than the time at which it is due.
  Json rows(std::string const& file, std::size_t least = 1) const {
    INFO(file);
    Json const result = json(file);
    Json const& samples = result.at("samples");
    CHECK(samples.size() == field(result, "summary", "samples"));
    CHECK(samples.size() >= least);
    double before = -1, due = -1;  // in ms; a sample may be 1 ms early because times are rounded
    for (Json const& sample : samples) {
      CHECK(sample.size() == result.at("columns").size());
      double const time = sample.at(0);
      CHECK(time > before);
      CHECK(1000 * time >= due);
      before = time;
      due += result.at("interval_ms").get<int>();
    }
    return result;
  }

  /// Runs the command `command` with its standard output connected to a pipe whose reader has already closed
  /// it. Returns the exit code of the command.
  std::string unread(std::string const& command) const {
    run("{ until [ -e gone ]; do sleep 0.05; done; set +e; " + command +
        "; echo $? > code; } | { exec <&-; echo > gone; }");
    return text("code");
  }
};

}  // namespace

TEST_CASE("monitor: without a driver no column is for GPUs, and the exit code and output are the command's") {
  Monitor const sh;
  auto const end = sh.run(
      "TESSERA_NVML=libno-such-nvml.so.1 monitor --interval-ms 5 --csv a.csv --json a.json -- "
      "sh -c 'sleep 0.4; echo out; exit 7'");
  CHECK(end.code == 7);
  CHECK(end.out == "out\n");
  shows(end.err, "samples every 5 ms\n own CPU\n no GPUs: cannot load NVML\n process_mem_mb");
  CHECK_FALSE(has(end.err, "gpu0"));
  Json const rows = sh.rows("a.json", 2);
  CHECK(field(rows, "summary", "exit_code") == 7);
  CHECK(field(rows, "environment", "gpus").is_null());
  // The load of the CPU cores is the difference of two readings. The first sample has only one reading, so
  // its load is null.
  CHECK(field(rows, "samples", 0, 2).is_null());
  CHECK(field(rows, "summary", "columns", "processes", "min") >= 1);
  std::string const csv = sh.text("a.csv");
  CHECK(matches(csv, "\n").size() == rows.at("samples").size() + 1);
  shows(
      csv,
      R"(^time_s,unix_s,cpu_util_pct,process_cpu_util_pct,process_mem_mb,processes\n[0-9.e-]+,[0-9.]+,,,[0-9.]+,[0-9]+\n)");
}

TEST_CASE("monitor: GPUs have columns, and values that a GPU does not report are null") {
  Monitor const sh;
  auto const end = sh.run(sh.on_gpus + "--seconds 0.3 --interval-ms 10 --json b.json --csv -");
  CHECK(end.code == 0);
  shows(end.out, R"(^time_s,[^\n]*gpu0_util_pct,[^\n]*gpu1_energy_j\n[0-9])");
  shows(end.err, R"(
      gpu0_power_instant_w +688.7 +0.0 +688.7 +688.7 +688.7
      gpu0 . energy [0-9.]+ J . clocks held down: sw_power_cap 100.0% sw_thermal_slowdown 100.0%)");
  CHECK_FALSE(has(end.err, "gpu1_power_w"));
  Json const rows = sh.rows("b.json", 2);
  CHECK(field(rows, "summary", "columns", "gpu0_temp_c", "median") == 61);
  CHECK(field(rows, "summary", "columns", "gpu1_temp_c", "median") == 44);
  CHECK(field(rows, "summary", "columns", "gpu1_power_w").is_null());
  CHECK(field(rows, "summary", "gpus", 1, "energy_j").is_null());
  CHECK(field(rows, "environment", "gpus", 0, "power_limit_w") == 600);
  CHECK(rows.at("columns").size() == 28);
}

TEST_CASE("monitor: signals go to the command, and files are complete when it ends") {
  Monitor const sh;
  sh.write("heeds.sh", "trap 'sleep 0.2; exit 5' TERM\necho x > started\nwhile :; do sleep 0.05; done\n");
  CHECK(sh.signalled("TERM", ".", "started", "monitor --json c.json --csv c.csv -- sh heeds.sh") == 5);
  sh.rows("c.json", 2);
  sh.write("waits.sh", "echo x > started2\nexec sleep 100\n");
  CHECK(sh.signalled("INT", ".", "started2", "monitor --json d.json -- sh waits.sh") == 130);
  sh.rows("d.json");
}

TEST_CASE("monitor: without a command, signals end the run, and files are complete") {
  Monitor const sh;
  for (auto const& row : test::table("TERM | 143\n INT | 130\n HUP | 129")) {
    std::string const file = row[0] + ".csv";
    CHECK(std::to_string(sh.signalled(row[0], ",", file,
                                      "monitor --csv " + file + " --json e.json --seconds 1000")) == row[1]);
    sh.rows("e.json");
  }
  // The first sample is written at once, even if the interval is long.
  CHECK(sh.signalled("TERM", "^0", "h.csv",
                     "monitor --csv h.csv --json h.json --seconds 1000 --interval-ms 1000000") == 143);
  sh.rows("h.json");
  // monitor writes its files every second. After SIGKILL they are complete JSON and CSV.
  CHECK(sh.signalled("KILL", "[[]1[.]", "f.json", "monitor --json f.json --csv f.csv --seconds 1000") == 137);
  CHECK(sh.json("f.json").at("samples").size() >= 2);
}

TEST_CASE("monitor: SIGHUP under nohup and SIGCHLD ignored by the parent process have no effect") {
  Shell const sh;
  CHECK(sh.run(R"(trap '' HUP; monitor --csv i.csv --seconds 100 & pid=$!
                  until [ -s i.csv ]; do sleep 0.05; done
                  kill -HUP $pid; sleep 0.3; kill -TERM $pid; wait $pid)")
            .code == 143);
  CHECK(sh.run("env --ignore-signal=CHLD monitor -- sh -c 'sleep 0.4; exit 7'").code == 7);
}

TEST_CASE("monitor: a closed reader ends neither the command nor the writing of the other file") {
  Monitor const sh;
  CHECK(sh.unread("monitor --csv /dev/stdout --json k.json -- sh -c 'sleep 0.2; exit 7'") == "7\n");
  sh.rows("k.json");
}

TEST_CASE("monitor: a run without a command ends if nobody reads it, and a command may end from SIGPIPE") {
  Monitor const sh;
  CHECK(sh.unread("monitor --csv - --seconds 1000") == "1\n");
  CHECK(sh.run("monitor -- sh -c 'kill -PIPE $$'").code == 141);
}

TEST_CASE("monitor: --pid watches a process until it ends") {
  Monitor const sh;
  CHECK(sh.run("sleep 0.5 & exec monitor --json g.json --pid $!").code == 0);
  sh.rows("g.json");
}

TEST_CASE("monitor: a full disk does not end the command, and is an error") {
  Shell const sh;
  auto const end = sh.run("monitor --csv /dev/full -- echo done");
  CHECK(end.code == 1);
  CHECK(end.out == "done\n");
  CHECK(has(end.err, "error: /dev/full: cannot write"));
}

// The phases last 0.3 s (forward), 0.2 s (backward) and 0.05 s (update). A GPU reports a clock frequency that
// is up to 0.15 s old, so only the first two phases have clock frequencies. The column gpu0_power_w is a mean
// over more than one second. No phase is so long, and the two steps together last only 1.1 s, so no phase has
// a value in this column.
TEST_CASE("monitor: with marks, rows have their step and phase, and a figure covers only one phase") {
  Monitor const sh;
  auto const end = sh.run(sh.on_gpus +
                          "--interval-ms 5 --cpu-interval-ms 10 --csv m.csv --json m.json --marks t.json -- "
                          "tessera_marks_writer t.json");
  CHECK(end.code == 0);
  shows(end.err, R"(
      phases of rank 0 of 2, steps 3 to 4
      gpu0_sm_clock_mhz +[0-9.]+ \+- 0.0 +[0-9.]+ \+- 0.0 +- +[0-9.]+ \+- 0.0)");
  CHECK_FALSE(has(end.err.substr(end.err.find("phases of rank")), "gpu0_power_w "));
  Json const rows = sh.rows("m.json", 50);
  Json const phases = field(rows, "summary", "phases", "phases");
  for (auto const& row :
       test::table("forward | 2 | 300\n backward | 2 | 200\n update | 2 | 50\n steps | 1 | 1100")) {
    Json const phase = phases.at(row[0]);
    CHECK(phase.at("stretches") == std::stoi(row[1]));
    CHECK(phase.at("shortest_ms") == std::stoi(row[2]));
    CHECK((phase.at("samples") > 0 || row[0] == "update"));
  }
  for (auto const& row : test::table(R"(
      forward | gpu0_power_w
      forward | gpu0_util_pct
      steps | gpu0_power_w
      backward | gpu0_power_instant_w
      update | gpu0_sm_clock_mhz)"))
    CHECK_MESSAGE(field(phases, row[0], "columns", row[1]).is_null(), row[1], " of ", row[0]);
  double const instant = field(phases, "forward", "columns", "gpu0_power_instant_w", "mean");
  CHECK(instant >= 688.6);
  CHECK(instant < 688.8);
  CHECK(field(phases, "forward", "columns", "gpu0_sm_clock_mhz", "std") == 0);

  // In the CSV and the JSON file, each sample within a step has the number of the step and the name of the
  // phase, in the order of time. Samples outside of steps have empty values there.
  std::string const csv = sh.text("m.csv");
  CHECK(csv.substr(0, csv.find('\n')).ends_with("gpu1_energy_j,step,phase"));
  auto const marks = matches(csv, ",[0-9]*,[a-z]*\n");
  CHECK(marks.size() == rows.at("samples").size());
  CHECK(rows.at("columns").size() == 30);
  std::string changes, last;
  for (std::string const& mark : marks)
    if (mark != last) changes += last = mark;
  shows(changes, R"(^(,,\n)?(,3,(forward)?\n)+(,3,(backward)?\n)+(,3,(update)?\n|,,\n)*)"
                 R"((,4,(forward)?\n)+(,4,(backward)?\n)+(,4,(update)?\n|,,\n)*$)");
}

TEST_CASE("monitor: --marks-rank selects the rank of the marks, and --quiet prints no summary") {
  Monitor const sh;
  CHECK(sh.passes(sh.on_gpus + "--interval-ms 5 --json n.json --marks u.json --marks-rank 1 --quiet -- "
                               "tessera_marks_writer u.json") == "");
  CHECK(field(sh.json("n.json"), "summary", "phases", "rank") == 1);
}

TEST_CASE("monitor: marks that do not describe the run are an error, and output and files are complete") {
  Monitor const sh;
  sh.passes("tessera_marks_writer t.json");
  // Each row of the table below is: exit code of `monitor` | rank | error message | last line of the
  // command's script. This line makes the file of marks (times of steps and phases).
  for (auto const& row : test::table(R"(
      4 | 0 | no such file | true
      4 | 0 | empty | : > o.trace
      4 | 0 | damaged or not a trace | echo x > o.trace
      4 | 0 | not a trace that names | echo {} > o.trace
      4 | 0 | damaged or not a trace | head -c 300 t.json > o.trace
      4 | 0 | ended [0-9.]+ s before the first sample | cp t.json o.trace
      4 | 0 | began [0-9.]+ s after the last | sed 's/"start_ns":[0-9]*/"start_ns":9000000000000000/' t.json > o.trace
      4 | 0 | of version 9 | sed 's/"version":1/"version":9/' t.json > o.trace
      4 | 0 | written on another machine | sed 's/"boot":"/"boot":"0/' t.json > o.trace
      7 | 5 | has marks of 2 ranks | cp t.json o.trace; exit 7)")) {
    INFO(row[2]);
    sh.write("marks.sh", "echo out\nsleep 0.05\n" + row[3] + "\n");
    auto const end = sh.run("rm -f o.trace; monitor --csv o.csv --json o.json --marks o.trace --marks-rank " +
                            row[1] + " -- sh marks.sh");
    CHECK(std::to_string(end.code) == row[0]);
    CHECK(end.out == "out\n");
    shows(end.err, R"(\nerror: o.trace: [^\n]*)" + row[2] + R"([^\n]*\n$)");
    CHECK_FALSE(has(end.err, "phases of rank"));
    CHECK(field(sh.rows("o.json"), "summary", "phases").is_null());
  }
}

TEST_CASE("monitor: wrong flags, commands and files are refused") {
  Shell const sh;
  sh.refuses("monitor", R"(
      2 | --csv x.csv -- no-such-program | cannot start 'no-such-program' ( | give a program in PATH
      2 | --csv x.csv | nothing to watch | -- COMMAND
      2 | --csv x.csv -- | no command follows --
      2 | --pid 1 -- true | --pid and a command both select
      2 | --seconds 1 -- true | --seconds and a command both select
      2 | --pid 2147483000 | --pid 2147483000: no such process is running
      2 | --csv - --json x.json -- true | --csv - and the command both write to standard output | a file
      2 | --json - -- true | --json - and the command
      2 | --csv x --json ./x -- true | are the same file
      1 | --csv no/x.csv -- true | x.csv: cannot
      2 | --marks-rank 1 -- true | --marks-rank selects the rank of the marks | --marks FILE
      2 | --marks t.json --marks-rank -1 -- true | --marks-rank
      2 | --csv /dev/null --marks t.json -- true | /dev/null is a stream | give a file
      2 | --json t.json --marks ./t.json -- true | --json | --marks | the same file
      2 | --interval-ms 0 -- true | --interval-ms
      2 | train | unexpected)");
}
