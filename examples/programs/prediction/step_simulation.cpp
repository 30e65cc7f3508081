// SPDX-License-Identifier: Apache-2.0
#include "prediction/step_simulation.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "tessera/core/place.hpp"

namespace programs {
using namespace tessera;
namespace cli {
namespace {

/// Returns the index of the lane in which the simulation runs an entry. The lanes `compute` and `gradients`
/// share the device, so the simulation treats them as one lane. On the CPU it treats all lanes as one.
std::size_t track_of(StepPlan const& plan, Entry const& entry) {
  bool const with_all = info_of(plan.recipe.device).on_cores || entry.lane == Lane::gradients;
  return with_all ? 0 : static_cast<std::size_t>(entry.lane);
}

/// One execution of an entry in the simulation.
struct Job {
  std::size_t entry = 0;
  std::vector<std::size_t> waits;  ///< the jobs that must end before this one starts
  double left = 0;                 ///< seconds that the job still needs if no other job runs
  double wait = 0;                 ///< seconds that a collective still waits for multiprocessors
  bool running = false, ended = false;
};

/// Runs the jobs of all lanes at the same time, from one end of a job to the next.
class Simulation {
 public:
  Simulation(StepPlan const& plan, std::vector<double> const& took, Contention const& contention,
             std::vector<bool> const& chosen)
      : contention_(contention), chosen_(chosen) {
    Schedule const& schedule = plan.train.schedule;
    // A wait refers to the latest execution of an entry, so the list of jobs is made in the order of the
    // schedule.
    constexpr auto none = static_cast<std::size_t>(-1);
    std::vector<std::size_t> latest(took.size(), none);
    jobs_.resize(static_cast<std::size_t>(schedule.instances()));
    for (std::size_t at = 0; at < jobs_.size(); ++at) {
      Instance const instance = schedule.instance(static_cast<std::int64_t>(at));
      Job& job = jobs_[at];
      job.entry = static_cast<std::size_t>(instance.index);
      job.left = took[job.entry];
      job.wait = has(contention.collectives, job) ? contention.wait : 0;
      for (int const wait : instance.waits)
        if (std::size_t const other = latest[static_cast<std::size_t>(wait)]; other != none)
          job.waits.push_back(other);
      latest[job.entry] = at;
      lanes_[track_of(plan, instance.entry)].push_back(at);
    }
  }

  SimulatedStep run() {
    double now = 0, with_chosen = 0;
    for (start_jobs(); !running_.empty(); start_jobs()) {
      bool const computes = any_runs([this](Job const& job) { return has(contention_.slowed, job); });
      if (!computes)
        for (Job* job : running_) job->wait = 0;
      bool const exchanges = any_runs([this](Job const& job) { return has(contention_.collectives, job); });
      auto const transfers =
          static_cast<double>(std::count_if(running_.begin(), running_.end(), [this](Job const* job) {
            return has(contention_.collectives, *job) && job->wait <= 0;
          }));
      auto const rate = [&](Job const& job) {
        if (has(contention_.collectives, job))
          return (computes ? 1.0 - contention_.collective_slowdown : 1.0) / transfers;
        return exchanges && has(contention_.slowed, job) ? 1.0 - contention_.slowdown : 1.0;
      };
      auto const next = [&](Job const& job) { return job.wait > 0 ? job.wait : job.left / rate(job); };
      double passed = next(*running_.front());
      for (Job const* job : running_) passed = std::min(passed, next(*job));
      now += passed;
      if (any_runs([this](Job const& job) { return has(chosen_, job); })) with_chosen += passed;
      for (Job* job : running_) {
        // Because of rounding errors, a job that ends now possibly has a small rest.
        double const almost = 1e-12 * now;
        double& rest = job->wait > 0 ? job->wait : job->left;
        rest -= passed * (job->wait > 0 ? 1.0 : rate(*job));
        if (rest <= almost) rest = 0;
        job->ended = job->left <= 0;
      }
      std::erase_if(running_, [](Job* job) { return job->ended; });
    }
    return {now, with_chosen};
  }

 private:
  static bool has(std::vector<bool> const& list, Job const& job) { return !list.empty() && list[job.entry]; }

  template <class Is>
  bool any_runs(Is const& is) const {
    return std::any_of(running_.begin(), running_.end(), [&](Job const* job) { return is(*job); });
  }

  /// In each lane, starts the first job that has not ended, if all jobs for which it waits have ended. Jobs
  /// without work end at once.
  void start_jobs() {
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
        std::size_t& head = heads_[lane];
        while (head < lanes_[lane].size() && jobs_[lanes_[lane][head]].ended) ++head;
        if (head == lanes_[lane].size()) continue;
        Job& job = jobs_[lanes_[lane][head]];
        auto const has_ended = [this](std::size_t other) { return jobs_[other].ended; };
        if (job.running || !std::all_of(job.waits.begin(), job.waits.end(), has_ended)) continue;
        job.running = true;
        changed = true;
        if (job.left <= 0)
          job.ended = true;
        else
          running_.push_back(&job);
      }
    }
  }

  Contention const& contention_;
  std::vector<bool> const& chosen_;
  std::vector<Job> jobs_;
  std::array<std::vector<std::size_t>, lane_count> lanes_;
  std::array<std::size_t, lane_count> heads_{};
  std::vector<Job*> running_;
};

}  // namespace

SimulatedStep simulated(StepPlan const& plan, std::vector<double> const& took, Contention const& contention,
                        std::vector<bool> const& chosen) {
  return Simulation(plan, took, contention, chosen).run();
}

double on_paper(StepPlan const& plan, std::vector<double> const& took, Contention const& contention) {
  return simulated(plan, took, contention, {}).seconds;
}

std::vector<double> fitted_to(double seconds, StepPlan const& plan, std::vector<double> took) {
  Schedule const& schedule = plan.train.schedule;
  std::array<double, lane_count> busy{};
  for (std::int64_t at = 0; at < schedule.instances(); ++at) {
    Instance const instance = schedule.instance(at);
    busy[track_of(plan, instance.entry)] += took[static_cast<std::size_t>(instance.index)];
  }
  auto const busiest = static_cast<std::size_t>(std::max_element(busy.begin(), busy.end()) - busy.begin());
  auto const scaled = [&](double factor) {
    std::vector<double> all = took;
    for (std::size_t at = 0; at < all.size(); ++at)
      if (track_of(plan, schedule.entries[at]) == busiest) all[at] *= factor;
    return all;
  };
  double low = 0.5, high = 1.0;
  if (on_paper(plan, scaled(low)) > seconds || on_paper(plan, scaled(high)) < seconds) return took;
  constexpr int halvings = 40;
  for (int halving = 0; halving < halvings; ++halving) {
    double const factor = 0.5 * (low + high);
    (on_paper(plan, scaled(factor)) < seconds ? low : high) = factor;
  }
  return scaled(high);
}

}  // namespace cli
}  // namespace programs
