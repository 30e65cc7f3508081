// SPDX-License-Identifier: Apache-2.0
// Tests from_environment(), which reads from environment variables the launcher (such as SLURM or torchrun)
// and the number of this rank. Covers the values that it returns and its errors.
#include "tessera/comm/environment.hpp"

#include <map>
#include <string>

#include <doctest/doctest.h>

#include "tessera/comm/processes.hpp"

namespace {

namespace ts = tessera;
using Variables = std::map<std::string, std::string>;

ts::comm::GetEnvironment reader(Variables const& variables) {
  return [&variables](char const* name) -> char const* {
    auto const found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

ts::comm::LaunchEnvironment read(Variables const& variables) {
  return ts::comm::launch_environment(reader(variables));
}

/// Calls from_environment() with the environment `variables`. Returns the thrown error as "kind: text", or
/// "accepted" if no error is thrown.
std::string refusal(Variables const& variables) {
  try {
    ts::comm::from_environment(reader(variables));
  } catch (ts::Error const& error) {
    return (error.kind() == ts::ErrorKind::config        ? "config: "
            : error.kind() == ts::ErrorKind::unsupported ? "unsupported: "
                                                         : "other: ") +
           std::string(error.what());
  }
  return "accepted";
}

bool holds(std::string const& text, std::string const& part) { return text.find(part) != text.npos; }

Variables const torchrun{{"RANK", "3"},
                         {"WORLD_SIZE", "8"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "10.0.0.7"},
                         {"MASTER_PORT", "29511"},
                         {"TORCHELASTIC_RUN_ID", "none"}};
Variables const open_mpi{{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                         {"PMIX_RANK", "1"}};
Variables const slurm{{"SLURM_PROCID", "5"},
                      {"SLURM_NTASKS", "11"},
                      {"SLURM_LOCALID", "1"},
                      {"SLURM_NODEID", "1"},
                      {"SLURM_STEP_ID", "0"},
                      {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
                      {"SLURM_STEP_NODELIST", "gpu[007-009]"},
                      {"SLURM_JOB_ID", "200505"}};

Variables with(Variables variables, std::string const& name, std::string const& value) {
  variables[name] = value;
  return variables;
}
Variables without(Variables variables, std::string const& name) {
  variables.erase(name);
  return variables;
}
Variables joined(Variables first, Variables const& second) {
  first.insert(second.begin(), second.end());
  return first;
}

}  // namespace

TEST_CASE("launchers are recognised with all they say") {
  auto const torch = read(torchrun);
  CHECK(ts::comm::describe(torch) == "torchrun: rank 3 of 8, local rank 1 of 2, master 10.0.0.7:29511");
  CHECK(torch.master_port_taken);
  CHECK(torch.local_world == 2);
  auto const standard_port = read(without(torchrun, "MASTER_PORT"));
  CHECK(standard_port.master_port == 29500);

  Variables const deepspeed{{"RANK", "1"},        {"WORLD_SIZE", "4"},     {"LOCAL_RANK", "1"},
                            {"LOCAL_SIZE", "2"},  {"CROSS_RANK", "0"},     {"CROSS_SIZE", "2"},
                            {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}};
  CHECK(ts::comm::describe(read(deepspeed)) == "deepspeed: rank 1 of 4, local rank 1 of 2, master a:29500");
  CHECK_FALSE(read(deepspeed).master_port_taken);

  CHECK(ts::comm::describe(read(open_mpi)) == "Open MPI: rank 1 of 4, local rank 1 of 4, master 127.0.0.1");
  CHECK(read(with(open_mpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "2")).master_address.empty());

  Variables const pmi{
      {"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}};
  CHECK(ts::comm::describe(read(pmi)) == "PMI: rank 2 of 3, local rank 0 of 1");
  CHECK(ts::comm::describe(read({{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}})) == "PMI: rank 2 of 3");
  CHECK(read({{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"SLURM_LOCALID", "1"}}).local_rank == 1);

  Variables const mvapich{
      {"MV2_COMM_WORLD_RANK", "0"}, {"MV2_COMM_WORLD_SIZE", "2"}, {"MV2_COMM_WORLD_LOCAL_RANK", "0"}};
  CHECK(ts::comm::describe(read(mvapich)) == "MVAPICH: rank 0 of 2, local rank 0");

  CHECK(ts::comm::describe(read(slurm)) == "SLURM: rank 5 of 11, local rank 1 of 4, master gpu007:65337");
  CHECK(read(slurm).master_port == 61440 + 200505 % 4096);
  CHECK(read(with(slurm, "SLURM_NODEID", "2")).local_world == 3);
  CHECK(read(with(slurm, "MASTER_ADDR", "head")).master_address == "head");
}

TEST_CASE("several launchers have an order") {
  CHECK(read(joined(torchrun, joined(open_mpi, slurm))).source == "torchrun");
  CHECK(read(joined(open_mpi, slurm)).source == "Open MPI");
  CHECK(read(joined({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, slurm)).source == "PMI");
  CHECK(read(joined(slurm, {{"PMIX_RANK", "5"}})).source == "SLURM");
  // srun --mpi=pmi2 sets the variables of both PMI and SLURM. SLURM has priority here, because only its
  // variables give the local rank. mpiexec within a SLURM step sets its own PMI variables, which then have
  // priority.
  auto const pmi2 = read(joined({{"PMI_RANK", "5"}, {"PMI_SIZE", "11"}, {"PMI_FD", "12"}}, slurm));
  CHECK(ts::comm::describe(pmi2) == ts::comm::describe(read(slurm)));
  CHECK(read(joined({{"PMI_RANK", "5"}, {"PMI_SIZE", "11"}, {"MPI_LOCALRANKID", "1"}}, slurm)).source ==
        "PMI");
  CHECK(read(joined({{"PMI_RANK", "5"}, {"PMI_SIZE", "12"}}, slurm)).source == "PMI");
}

TEST_CASE("without a launcher there is one rank") {
  // None of these variables means that a launcher started the process. SLURM_JOB_ID without a rank means only
  // an allocation. MASTER_ADDR alone does not give the number of ranks.
  for (Variables const& variables :
       {Variables{}, Variables{{"SLURM_JOB_ID", "17"}, {"SLURM_NTASKS", "8"}},
        Variables{{"MASTER_ADDR", "a"}}, Variables{{"RANK", ""}}, Variables{{"MPI_LOCALRANKID", "0"}}}) {
    CHECK(read(variables).source == "none");
    auto const comm = ts::comm::from_environment(reader(variables));
    CHECK(comm.world() == 1);
    CHECK(comm.is_root());
    CHECK(comm.transport().name() == "single");
  }
  auto const one = with(with(with(torchrun, "WORLD_SIZE", "1"), "RANK", "0"), "LOCAL_WORLD_SIZE", "1");
  CHECK(ts::comm::from_environment(reader(with(one, "LOCAL_RANK", "0"))).world() == 1);
}

TEST_CASE("one process of a launcher is a world of one, whatever else it leaves unsaid") {
  Variables const script{{"SLURM_JOB_ID", "9"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"},
                         {"SLURM_NODEID", "0"}, {"SLURM_NNODES", "1"}, {"SLURM_TASKS_PER_NODE", "1"}};
  Variables const shell =
      joined({{"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NODELIST", "n1"}, {"SLURM_STEP_NUM_TASKS", "1"}},
             script);
  Variables const mpirun{{"OMPI_COMM_WORLD_RANK", "0"},
                         {"OMPI_COMM_WORLD_SIZE", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                         {"PMIX_RANK", "0"}};
  for (auto const& [launcher, variables] : std::map<std::string, Variables>{
           {"SLURM batch script: rank 0 of 1, local rank 0", script},
           // The shell of salloc -n 4.
           {"SLURM: rank 0 of 1, local rank 0", with(shell, "SLURM_NTASKS", "4")},
           {"Open MPI: rank 0 of 1, local rank 0", mpirun},
           {"torchrun: rank 0 of 1, local rank 0", {{"RANK", "0"}, {"WORLD_SIZE", "1"}}},
           {"PMI: rank 0 of 1, local rank 0", {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}}}) {
    CHECK(ts::comm::describe(read(variables)) == launcher);
    CHECK(ts::comm::from_environment(reader(variables)).world() == 1);
  }
  CHECK(read(shell).world == 1);
  CHECK(read({{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NPROCS", "1"}}).world == 1);
  CHECK(read({{"LOCAL_RANK", "-1"}}).source == "none");
  // A launcher can start a single process with a local rank other than 0. This local rank is used, unless it
  // is -1.
  Variables const bound{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "3"}, {"LOCAL_WORLD_SIZE", "4"}};
  CHECK(read(bound).world == 1);
  CHECK(read(bound).local_rank == 3);
  CHECK(read(with(bound, "LOCAL_RANK", "-1")).local_rank == 0);
  CHECK(read({{"WORLD_SIZE", "1"}}).world == 1);
  // If the step and the job of SLURM have different numbers of tasks, the number of the step is used.
  CHECK(read(with(with(shell, "SLURM_STEP_NUM_TASKS", "2"), "SLURM_NTASKS", "1")).world == 2);
}

TEST_CASE("half a launch names the missing variable") {
  for (auto const& name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"})
    CHECK(holds(refusal(without(torchrun, name)), "config: " + std::string(name) + " is not set although "));
  CHECK(holds(refusal({{"WORLD_SIZE", "4"}}), "RANK is not set although WORLD_SIZE is"));
  CHECK(holds(refusal({{"LOCAL_RANK", "0"}}), "WORLD_SIZE is not set although LOCAL_RANK is"));
  for (auto const& name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"})
    CHECK(holds(refusal(without(open_mpi, name)), std::string(name) + " is not set although OMPI_"));
  CHECK(holds(refusal({{"PMI_RANK", "0"}}), "PMI_SIZE is not set although PMI_RANK is"));
  CHECK(holds(refusal({{"PMI_SIZE", "2"}}), "PMI_RANK is not set although PMI_SIZE is"));
  for (auto const& name : {"SLURM_NTASKS", "SLURM_LOCALID"})
    CHECK(holds(refusal(without(slurm, name)), std::string(name) + " is not set although SLURM_PROCID is"));
  CHECK(holds(refusal({{"PMIX_RANK", "0"}}),
              "config: PMIX_RANK is set, but no variable tells the number of ranks"));
  // If the variables of a launcher are incomplete, this is an error, even if the variables of a launcher with
  // lower priority are complete.
  CHECK(holds(refusal(joined({{"WORLD_SIZE", "8"}}, slurm)), "RANK is not set although WORLD_SIZE is"));
}

TEST_CASE("values that cannot be are named") {
  CHECK(holds(refusal(with(torchrun, "RANK", "abc")), "RANK is 'abc', which is not a whole number"));
  CHECK(holds(refusal(with(torchrun, "RANK", "-1")), "RANK is '-1'"));
  CHECK(holds(refusal(with(torchrun, "RANK", "1 ")), "RANK is '1 '"));
  CHECK(holds(refusal(with(torchrun, "WORLD_SIZE", "99999999999999999999")),
              "WORLD_SIZE is '99999999999999999999'"));
  CHECK(holds(refusal(with(torchrun, "WORLD_SIZE", "0")), "WORLD_SIZE is '0'"));
  CHECK(holds(refusal(with(torchrun, "RANK", "8")), "RANK is 8 but WORLD_SIZE is 8 on "));
  CHECK(
      holds(refusal(with(torchrun, "RANK", "8")), "; ranks run from 0 to 7, so correct RANK or WORLD_SIZE"));
  CHECK(holds(refusal(with(torchrun, "LOCAL_RANK", "2")), "LOCAL_RANK is 2, which must be below 2"));
  CHECK(holds(refusal(with(torchrun, "LOCAL_WORLD_SIZE", "9")), "LOCAL_WORLD_SIZE is 9 but WORLD_SIZE is 8"));
  CHECK(holds(refusal(with(torchrun, "MASTER_PORT", "70000")), "MASTER_PORT is '70000'"));
  CHECK(holds(refusal(with(slurm, "SLURM_STEP_NODELIST", "a[01")), "SLURM_STEP_NODELIST is 'a[01'"));
}

TEST_CASE("a batch script of SLURM with several tasks is refused and never a world of one") {
  // A batch script runs once, outside the tasks of its job. Its variables give the number of these tasks, but
  // the script itself must not be taken for one of them.
  auto const script = refusal({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}});
  CHECK(holds(script, "config: this program was started in a batch script of SLURM, without srun"));
  CHECK(holds(script, "the job has 4 tasks; start it with srun, or unset SLURM_PROCID"));
}

TEST_CASE("the first host of a list") {
  CHECK(ts::comm::first_host("a[01-04,07],b") == "a01");
  CHECK(ts::comm::first_host("b,a[01-04]") == "b");
  CHECK(ts::comm::first_host("host") == "host");
  CHECK(ts::comm::first_host("gnode[10,20,25,37]") == "gnode10");
  CHECK(ts::comm::first_host("n[3,5]-ib[0-1].cluster,x") == "n3-ib0.cluster");
  CHECK(ts::comm::first_host("a-b-1,c") == "a-b-1");
  for (char const* bad : {"", ",a", "a[", "a[]", "a[1", "a]1", "a[[1]]", "[,1]"})
    CHECK_THROWS_WITH_AS(ts::comm::first_host(bad), doctest::Contains("SLURM_STEP_NODELIST is '"), ts::Error);
}
